"""Patches that overlap, against embeddings and positions written out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from torch.nn.functional import interpolate, unfold

from attnviz.attention.compute import compute
from attnviz.attention.verify import verify
from attnviz.domain import Box, FitGeometry, HeadsMaps, Positions, Size
from attnviz.domain.kinds import KINDS, HeadsRequest
from attnviz.domain.requests import ModelRequest
from attnviz.errors import UnsupportedModelError, UsageError
from attnviz.models.backbone import Backbone
from attnviz.models.catalogue import known_info, stride_of
from attnviz.models.load import load_backbone
from attnviz.models.overlap import check_overlap, overlapping
from tests.helpers import checkpoints
from tests.helpers.kinds import BY_DEFAULT
from tests.helpers.planted import backbone_of, dense_attention, tiny_vit
from tests.helpers.writer_neurons import batch_of, neuron_list, with_hash

BATCH = batch_of(0, 1)
WIDE = torch.cat([BATCH, BATCH.flip(-1)], dim=-1)
"""Images of 32 x 64 pixels."""


def strided(backbone, stride, **info):
    """The same model with overlapping patches."""
    named = replace(backbone.info, stride=stride, **info)
    return Backbone(backbone.module, named, offset=info.get("positions") is Positions.ORIGINAL)


def embedded(backbone, batch):
    """What the patch embedding gives in a pass, (B, n, width)."""
    found = []
    handle = backbone.module.patch_embed.register_forward_hook(
        lambda _m, _i, out: found.append(out.flatten(1, 2))
    )
    backbone.run(batch)
    handle.remove()
    return found[0]


@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("batch", [BATCH, WIDE], ids=["square", "wide"])
def test_embeddings_are_unfold_and_a_matrix_product(stride, batch):
    model = strided(tiny_vit(), stride)
    projection = model.module.patch_embed.proj
    columns = unfold(batch, 8, stride=stride).transpose(1, 2)  # B, n, 3 * 8 * 8
    expected = columns @ projection.weight.flatten(1).T + projection.bias
    grid = model.info.grid_of(Size(*batch.shape[-2:]))
    assert grid == (1 + (32 - 8) // stride, 1 + (batch.shape[-1] - 8) // stride)
    torch.testing.assert_close(embedded(model, batch), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stride", [2, 4])
def test_every_so_many_embeddings_are_those_of_patches_side_by_side(stride):
    plain = tiny_vit()
    model = strided(plain, stride)
    grid, every = model.info.grid_of(Size(32, 64)), 8 // stride
    fine = embedded(model, WIDE).unflatten(1, tuple(grid))[:, ::every, ::every].flatten(1, 2)
    torch.testing.assert_close(fine, embedded(plain, WIDE), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rotary", [False, True])
def test_the_patch_as_stride_is_the_model_to_the_bit(rotary, tmp_path):
    state = checkpoints.meta_dinov3() if rotary else checkpoints.original()
    path = checkpoints.save(tmp_path / "a.pth", state)
    request = ModelRequest(checkpoint=path, args={"heads": 2})
    plain, same = load_backbone(request), load_backbone(replace(request, stride=8))
    assert same.info == plain.info
    assert torch.equal(same.run(WIDE), plain.run(WIDE))
    finer = load_backbone(replace(request, stride=4))
    assert finer.info.stride == 4
    before = plain.run(WIDE)
    assert finer.run(WIDE).shape[1] == plain.info.prefix + 7 * 15
    assert torch.equal(plain.run(WIDE), before)


def test_learned_positions_are_resized_to_the_finer_grid_by_the_models_rule():
    plain = tiny_vit()
    stored = plain.module.pos_embed[:, 1:].unflatten(1, (4, 4)).permute(0, 3, 1, 2)
    rules = {
        Positions.TIMM: {"size": (7, 15), "antialias": True},
        Positions.HF: {"size": (7, 15), "antialias": False},
        Positions.ORIGINAL: {"scale_factor": (7.1 / 4, 15.1 / 4)},
    }
    for rule, how in rules.items():
        model = strided(plain, 4, positions=rule)
        resized = interpolate(stored, mode="bicubic", **how).permute(0, 2, 3, 1).flatten(1, 2)
        found = []
        handle = model.module.pos_drop.register_forward_hook(
            lambda _m, _i, out, found=found: found.append(out)
        )
        model.run(WIDE)
        handle.remove()
        expected = embedded(model, WIDE) + resized
        torch.testing.assert_close(found[0][:, 1:], expected, rtol=1e-5, atol=1e-5)


def test_dinov3_is_rotated_by_the_true_centres_in_pixels(tmp_path):
    path = checkpoints.save(tmp_path / "a.pth", checkpoints.meta_dinov3())
    model = load_backbone(ModelRequest(checkpoint=path, args={"heads": 2}, stride=2))
    rope = model.module.rope
    with overlapping(model.module, 8, 2):
        found = rope.get_embed(shape=(13, 29))  # of 32 x 64 pixels
    rows, columns = torch.meshgrid(torch.arange(13), torch.arange(29), indexing="ij")
    centres = torch.stack([rows, columns], dim=-1).reshape(-1, 2).double() * 2 + 4  # pixels
    coordinates = 2 * centres / torch.tensor([32.0, 64.0]) - 1
    angles = 2 * math.pi * coordinates[:, :, None] / rope.periods.double()
    angles = angles.flatten(1).tile(2) if rope.rotate_half else angles.flatten(1)
    expected = torch.cat([angles.sin(), angles.cos()], dim=-1)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)
    assert "get_embed" not in rope.__dict__


@pytest.mark.parametrize("shape", [(4, 4), (4, 8), (1, 4)])
@pytest.mark.parametrize("kind", ["cat", "pixel", "ref", "mixed", "dinov3"])
def test_rotary_positions_pass_through_those_side_by_side(kind, shape):
    from timm.layers import (
        RotaryEmbeddingCat,
        RotaryEmbeddingDinoV3,
        RotaryEmbeddingMixed,
    )

    rope = {
        "cat": lambda: RotaryEmbeddingCat(16, in_pixels=False),
        "pixel": lambda: RotaryEmbeddingCat(16, in_pixels=True),
        "ref": lambda: RotaryEmbeddingCat(16, in_pixels=False, ref_feat_shape=(7, 7)),
        "mixed": lambda: RotaryEmbeddingMixed(32, depth=2, num_heads=2),
        "dinov3": lambda: RotaryEmbeddingDinoV3(16),
    }[kind]()
    module = tiny_vit().module
    module.rope = rope
    plain = rope.get_embed(shape=shape)
    for stride in (2, 4):
        every = 8 // stride
        grid = tuple((side - 1) * every + 1 for side in shape)
        with overlapping(module, 8, stride):
            fine = rope.get_embed(shape=grid)
        assert fine.shape[-2] == grid[0] * grid[1]
        fine = fine.unflatten(-2, grid)
        picked = fine[..., ::every, ::every, :].flatten(-3, -2)
        assert torch.equal(picked, plain)
        if min(shape) > 1:
            # Angles grow evenly along an axis, so in the middle between two indices lies the
            # direction of their sum.
            width = fine.shape[-1] // 2
            ends = fine[..., 0, 0, :] + fine[..., 0, every, :]
            middle = fine[..., 0, every // 2, :]
            across = ends[..., :width] * middle[..., width:]
            along = ends[..., width:] * middle[..., :width]
            torch.testing.assert_close(across, along, rtol=0, atol=1e-4)


@pytest.mark.parametrize("rotary", [False, True])
def test_attention_is_that_of_the_longer_sequence(rotary, tmp_path):
    state = checkpoints.meta_dinov3() if rotary else checkpoints.original()
    path = checkpoints.save(tmp_path / "a.pth", state)
    model = load_backbone(ModelRequest(checkpoint=path, args={"heads": 2}, stride=4))
    matrices = dense_attention(model, BATCH)
    geometry = FitGeometry(Size(32, 32), Size(32, 32), 8, Box(0, 0, 32, 32), stride=4)
    found = compute(model, BATCH, [geometry] * 2, HeadsRequest())
    for image, maps in enumerate(found):
        assert isinstance(maps, HeadsMaps)
        assert maps.attention.shape == (2, 7, 7)
        expected = matrices[-1, image, :, 0, model.info.prefix :].reshape(2, 7, 7).numpy()
        np.testing.assert_allclose(maps.attention, expected, rtol=0, atol=1e-6)
    assert max(verify(model, BATCH)) < 1e-5


def test_distances_count_pixels_between_the_centres():
    model = strided(tiny_vit(), 4)
    geometry = FitGeometry(Size(32, 32), Size(32, 32), 8, Box(0, 0, 32, 32), stride=4)
    (maps,) = compute(model, BATCH[:1], [geometry], HeadsRequest())
    attention = dense_attention(model, BATCH[:1])[-1, 0, :, 1:, 1:].double().numpy()
    attention /= attention.sum(axis=-1, keepdims=True)
    centres = np.stack(np.mgrid[0:7, 0:7], axis=-1).reshape(-1, 2) * 4.0
    distances = np.linalg.norm(centres[:, None] - centres, axis=-1)
    expected = (attention * distances).sum(axis=-1).mean(axis=-1)
    np.testing.assert_allclose(maps.distance, expected, rtol=1e-5)


@pytest.mark.parametrize("kind", BY_DEFAULT)
def test_every_kind_has_the_finer_grid(kind):
    model = strided(tiny_vit(), 4)
    geometry = FitGeometry(Size(32, 64), Size(32, 64), 8, Box(0, 0, 32, 64), stride=4)
    request = KINDS[kind].request().keeping_data(save_data=True)
    (maps,) = compute(model, WIDE[:1], [geometry], request)
    sizes = {side for values in maps.arrays().values() for side in values.shape}
    assert sizes & {7, 15, 1 + 7 * 15}
    assert not sizes & {8, 1 + 4 * 8}


def test_registers_and_a_stride_go_together():
    model = with_hash(tiny_vit())
    model = strided(model, 4).with_test_registers(neuron_list((0, 3), (1, 5)), 2)
    assert (model.info.stride, model.info.prefix) == (4, 3)
    assert model.run(BATCH).shape == (2, 3 + 49, 32)


def test_the_stride_must_divide_the_patch(tmp_path):
    assert stride_of(None, 8) is None
    assert stride_of(8, 8) is None
    assert stride_of(2, 8) == 2
    for stride in (3, 16):
        with pytest.raises(UsageError, match=f"--stride {stride} does not divide"):
            stride_of(stride, 8)
    with pytest.raises(UsageError, match="does not divide the patch of 14"):
        known_info(ModelRequest(name="dinov2_vits14", stride=4))
    assert known_info(ModelRequest(name="dinov2_vits14", stride=7)).stride == 7
    path = checkpoints.save(tmp_path / "a.pth", checkpoints.original())
    with pytest.raises(UsageError, match="does not divide the patch of 8"):
        load_backbone(ModelRequest(checkpoint=path, args={"heads": 2}, stride=5))


def test_other_patch_embeddings_are_refused():
    module = tiny_vit().module
    module.patch_embed.proj = torch.nn.Sequential(module.patch_embed.proj)
    with pytest.raises(UnsupportedModelError, match="cannot overlap"):
        check_overlap(module, "hybrid")


def test_relative_positions_are_resized_to_the_finer_grid():
    module = timm.create_model(
        "beit_base_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2,
        num_classes=0,
    ).eval().requires_grad_(False)  # fmt: skip
    module.patch_embed.strict_img_size = False
    for block in module.blocks:
        torch.nn.init.normal_(block.attn.relative_position_bias_table)
    plain = backbone_of(module)
    assert strided(plain, 4).run(BATCH).shape == (2, 50, 32)
    assert plain.run(BATCH).shape == (2, 17, 32)
