"""The hooked pass: what it sees, what it refuses, and that nothing of it stays behind."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

from attnviz.attention.blocks import row_blocks
from attnviz.attention.capture import capture
from attnviz.attention.maps import heads_maps, layers_maps, patch_maps
from attnviz.attention.verify import verify
from attnviz.domain import Query
from attnviz.domain.kinds import HeadsRequest, LayersRequest, PatchRequest
from attnviz.errors import AttentionError, UnsupportedModelError, UsageError
from attnviz.models.precision import cast
from tests.helpers.planted import backbone_of, dense_attention, planted_call, tiny_vit


def batch_of(height=24, width=40, images=1, seed=1):
    return torch.randn(images, 3, height, width, generator=torch.Generator().manual_seed(seed))


def hooks_on(module):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


@pytest.mark.parametrize("registers", [0, 1, 4])
def test_every_layer_and_head_is_the_dense_matrix(registers):
    backbone = tiny_vit(registers=registers)
    batch = batch_of(images=2)
    dense = dense_attention(backbone, batch)
    for image, maps in enumerate(layers_maps(backbone, batch, LayersRequest())):
        assert maps.attention.shape == (3, 2, 3, 5)
        rows = dense[:, image, :, 0]
        assert torch.allclose(
            torch.from_numpy(maps.attention).flatten(2), rows[..., 1 + registers :], atol=1e-6
        )
        assert torch.allclose(torch.from_numpy(maps.prefix), rows[..., : 1 + registers], atol=1e-6)
        total = maps.attention.sum(axis=(2, 3)) + maps.prefix.sum(axis=2)
        assert abs(total - 1).max() < 1e-5


def test_the_map_is_the_query_row_not_the_key_column():
    """A planted matrix whose row 0 and column 0 differ."""
    matrix = [
        [0.1, 0.6, 0.2, 0.1],
        [0.3, 0.3, 0.2, 0.2],
        [0.3, 0.1, 0.5, 0.1],
        [0.3, 0.4, 0.1, 0.2],
    ]
    row = planted_call(matrix).rows(torch.zeros(1, dtype=torch.long))[0, 0, 0, 1:]
    assert torch.allclose(row, torch.tensor([0.6, 0.2, 0.1]), atol=1e-6)


def test_a_patch_is_the_row_behind_the_prefix():
    backbone = tiny_vit(registers=4)
    batch = batch_of()
    dense = dense_attention(backbone, batch)
    cells = [(0, 0), (2, 3)]
    maps = patch_maps(backbone, batch, PatchRequest(layer=1, heads=(1, 0)), [cells])[0]
    assert maps.heads == (1, 0)
    for place, (row, column) in enumerate(cells):
        expected = dense[1, 0, [1, 0], 5 + row * 5 + column]
        ours = torch.from_numpy(maps.attention[place]).flatten(1)
        assert torch.allclose(ours, expected[:, 5:], atol=1e-6)
        assert torch.allclose(torch.from_numpy(maps.prefix[place]), expected[:, :5], atol=1e-6)


def test_a_cell_outside_the_grid_is_refused():
    with pytest.raises(UsageError, match="outside the grid"):
        patch_maps(tiny_vit(), batch_of(), PatchRequest(), [[(3, 0)]])


def test_whole_matrix_numbers_of_a_middle_layer_leave_the_later_layers_as_they_are():
    """With distances the blocks make the output themselves; the maps must not notice."""
    backbone = tiny_vit(depth=4)
    with_distance = layers_maps(backbone, batch_of(), LayersRequest())[0]
    without = layers_maps(backbone, batch_of(), LayersRequest(distance=False))[0]
    assert abs(with_distance.attention - without.attention).max() < 1e-6
    assert without.distance is None
    assert with_distance.distance is not None


def test_the_mean_query_of_a_model_without_a_class_token():
    backbone = tiny_vit(cls=False, registers=1)
    batch = batch_of()
    dense = dense_attention(backbone, batch)
    maps = heads_maps(backbone, batch, HeadsRequest(layer=1, query=Query.MEAN))[0]
    expected = dense[1, 0, :, 1:].mean(dim=1)
    assert torch.allclose(torch.from_numpy(maps.attention).flatten(1), expected[:, 1:], atol=1e-6)
    with pytest.raises(UnsupportedModelError, match="no CLS token"):
        heads_maps(backbone, batch, HeadsRequest())


@pytest.mark.parametrize("setting", [None, "0", "1"])
def test_maps_do_not_depend_on_the_fused_attention_switch(setting, monkeypatch):
    if setting is not None:
        monkeypatch.setattr("timm.layers.config._USE_FUSED_ATTN", int(setting))
    backbone = tiny_vit(seed=5)
    assert backbone.blocks[0].attn.fused_attn is (setting != "0")
    expected = dense_attention(backbone, batch_of())[:, 0, :, 0, 1:]
    maps = layers_maps(backbone, batch_of(), LayersRequest())[0]
    assert torch.allclose(torch.from_numpy(maps.attention).flatten(2), expected, atol=1e-6)
    assert backbone.blocks[0].attn.fused_attn is (setting != "0")


def test_maps_do_not_depend_on_the_batch():
    backbone = tiny_vit(depth=4)
    batch = batch_of(images=3)
    together = layers_maps(backbone, batch, LayersRequest())
    for image, maps in enumerate(together):
        alone = layers_maps(backbone, batch[image : image + 1], LayersRequest())[0]
        assert abs(maps.attention - alone.attention).max() < 1e-6
        assert abs(maps.distance - alone.distance).max() < 1e-4


def test_nothing_stays_on_the_model_after_success_refusal_or_a_raising_model():
    backbone = tiny_vit()
    before = {name: id(value) for name, value in backbone.module.named_parameters()}
    heads_maps(backbone, batch_of(), HeadsRequest())
    assert hooks_on(backbone.module) == 0
    with pytest.raises(UsageError, match="layer 3"):
        heads_maps(backbone, batch_of(), HeadsRequest(layer=3))
    assert hooks_on(backbone.module) == 0

    class Broken(nn.Module):
        def forward(self, _x):
            raise RuntimeError("broken layer")

    mlp, backbone.module.blocks[1].mlp = backbone.module.blocks[1].mlp, Broken()
    with pytest.raises(RuntimeError, match="broken layer"):
        heads_maps(backbone, batch_of(), HeadsRequest())
    assert hooks_on(backbone.module) == 0
    backbone.module.blocks[1].mlp = mlp
    assert {name: id(value) for name, value in backbone.module.named_parameters()} == before
    heads_maps(backbone, batch_of(), HeadsRequest())


def test_blocks_after_the_last_asked_layer_do_not_run():
    backbone = tiny_vit(depth=4)
    ran = []
    for place, block in enumerate(backbone.blocks):
        block.mlp.register_forward_hook(lambda *_a, place=place: ran.append(place))
    heads_maps(backbone, batch_of(), HeadsRequest(layer=1))
    assert ran == [0]


def test_only_the_rows_asked_for_are_held():
    """No tensor of N x N comes into being for the CLS rows."""
    backbone = tiny_vit(size=96)
    sizes = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                sizes.append(out.shape)
            return out

    with Watch():
        heads_maps(backbone, batch_of(96, 96), HeadsRequest(distance=False))
    assert sizes
    assert not [s for s in sizes if list(s[-2:]) == [145, 145]]


def test_a_mask_counts():
    matrix = torch.full((4, 4), 0.25)
    call = planted_call(matrix)
    hidden = torch.ones(4, 4, dtype=torch.bool)
    hidden[:, 3] = False
    for mask in (hidden, torch.where(hidden, 0.0, float("-inf"))):
        masked = type(call)(0, call.query, call.key, call.value, mask, 1.0)
        rows = masked.rows(torch.arange(2))[0, 0]
        assert torch.allclose(rows, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0]] * 2), atol=1e-6)
        seen = [block.attention().clone() for block in row_blocks(masked)]
        assert torch.allclose(seen[0][0, :2], rows, atol=1e-6)
        assert all(torch.equal(part[..., 3], torch.zeros(1, len(part[0]))) for part in seen)


def test_numbers_that_are_not_finite_are_refused():
    backbone = tiny_vit()
    batch = batch_of()
    batch[0, 0, 0, 0] = float("nan")
    with pytest.raises(AttentionError, match="attention of layer 2 is broken"):
        heads_maps(backbone, batch, HeadsRequest())


def test_an_output_that_is_not_attention_times_v_is_refused():
    backbone = tiny_vit()

    def tampered(call):
        output = torch.empty_like(call.query[0])
        for block in row_blocks(call, output=output):
            output[:, block.rows] *= 1.01
        return output[None]

    with pytest.raises(AttentionError, match="differs from the model's own output"):
        capture(backbone, batch_of(), 2, tampered)


def test_a_block_that_attends_twice_is_refused():
    module = timm.models.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=0,
        dynamic_img_size=True, block_fn=timm.models.vision_transformer.ParallelThingsBlock,
    ).eval()  # fmt: skip
    backbone = backbone_of_parallel(module)
    with pytest.raises(UnsupportedModelError, match="block 0 calls"):
        heads_maps(backbone, batch_of(), HeadsRequest())
    assert hooks_on(module) == 0


def backbone_of_parallel(module):
    for block in module.blocks:
        block.attn = block.attns[0].attn
    return backbone_of(module)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_and_is_summed_in_float32(precision):
    backbone = tiny_vit()
    expected = layers_maps(backbone, batch_of(), LayersRequest())[0]
    module = tiny_vit().module
    cast(module, precision)
    maps = layers_maps(backbone_of(module), batch_of(), LayersRequest())[0]
    total = maps.attention.sum(axis=(2, 3)) + maps.prefix.sum(axis=2)
    assert abs(total - 1).max() < 1e-5
    assert abs(maps.attention - expected.attention).max() < 1e-2 * expected.attention.max()


def test_verify_measures_every_block():
    deviations = verify(tiny_vit(depth=4), batch_of(images=2))
    assert len(deviations) == 4
    assert max(deviations) < 1e-5
