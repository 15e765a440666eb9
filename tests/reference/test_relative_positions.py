"""BEiT and other ViTs whose logits have a bias of relative positions, against timm and by hand.

timm itself is set to each input size, and its attention read without the fused kernel.
"""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import attnviz as package
from attnviz.attention.factors import factorize
from attnviz.attention.query_keys import query_keys
from attnviz.attention.relative_bias import full_bias
from attnviz.errors import CheckpointError
from tests.helpers.command_line import arrays, attnviz
from tests.reference.unfused import peaked, unfused

TOLERANCE = 1e-6
SMALL = {"embed_dim": 64, "depth": 3, "num_heads": 4, "num_classes": 0}
MODELS = {
    "BEiT": ("beit_base_patch16_224", {"img_size": 64}),
    "shared": (
        "beit_base_patch16_224",
        {"img_size": 64, "use_rel_pos_bias": False, "use_shared_rel_pos_bias": True},
    ),
    "absolute too": ("beitv2_base_patch16_224", {"img_size": 64, "use_abs_pos_emb": True}),
    "wide": ("beit_base_patch16_224", {"img_size": (32, 128)}),
    "gated": ("beit_base_patch16_224", {"img_size": 64, "swiglu_mlp": True, "init_values": 0.0}),
    "CLS token": ("beit_base_patch16_224", {"img_size": 64, "global_pool": "token"}),
}
GRIDS = [(4, 4), (2, 8), (3, 6), (7, 5)]


@pytest.fixture(scope="module")
def made():
    known = {}

    def get(name):
        if name not in known:
            timm_name, arguments = MODELS[name]
            known[name] = peaked(timm.create_model(timm_name, **SMALL, **arguments))
        return known[name]

    return get


def matrices(model, batch):
    from attnviz.attention.capture import capture

    found = []

    def take(call):
        assert call.mask is not None, "the bias is in the mask of the attention call"
        found.append(call.rows(torch.arange(call.query.shape[-2]))[0])

    capture(model, batch, model.info.depth - 1, take)
    return torch.stack(found).numpy()


def theirs(module, batch):
    """timm's own, set to the size of the batch."""
    module = copy.deepcopy(module)
    with warnings.catch_warnings():  # of torch, on how timm resizes a table
        warnings.simplefilter("ignore")
        module.set_input_size(tuple(batch.shape[-2:]))
    return unfused(module, lambda: module.forward_features(batch))


def pixels(rows, columns):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(1, 3, 16 * rows, 16 * columns, generator=generator)


def loaded(module, tmp_path, **more):
    path = tmp_path / "weights.pth"
    torch.save(module.state_dict(), path)
    return package.load_model(checkpoint=path, device="cpu", **more)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("grid", GRIDS)
def test_a_bare_file_at_its_own_grid_and_at_others(name, grid, made, tmp_path):
    module = made(name)
    size = {"img_height": 32, "img_width": 128} if name == "wide" else {}
    model = loaded(module, tmp_path, **size)
    info = model.info
    assert (info.heads, info.prefix, info.has_cls) == (4, 1, True)
    assert info.native_size == ((32, 128) if name == "wide" else (64, 64))
    batch = pixels(*grid)
    expected = theirs(module, batch)
    found = matrices(model, batch)
    assert np.abs(found - expected).max() < TOLERANCE
    assert expected.std() > 0.03
    again = matrices(model, batch)
    assert (again == found).all(), "resized tables are kept"
    own = matrices(model, pixels(4, 4))
    assert own.shape[-1] == 17
    if name != "wide":
        expected = theirs(module, pixels(4, 4))
        assert np.abs(own - expected).max() < TOLERANCE, "the model's own table is put back"


def test_the_bias_itself_by_hand(made, tmp_path):
    """softmax(q k^T / sqrt(d) + B), B from the table by the difference of rows and columns."""
    module = made("BEiT")
    model = loaded(module, tmp_path)
    batch = pixels(4, 4)
    attn = module.blocks[0].attn
    table = attn.relative_position_bias_table.detach()  # 7 * 7 + 3, H
    bias = torch.empty(17, 17, 4)
    for i in range(16):
        for j in range(16):
            rows, columns = i // 4 - j // 4 + 3, i % 4 - j % 4 + 3
            bias[1 + i, 1 + j] = table[7 * rows + columns]
    bias[0, 1:], bias[1:, 0], bias[0, 0] = table[49], table[50], table[51]
    tokens = []
    hook = module.blocks[0].norm1.register_forward_hook(lambda _m, _i, out: tokens.append(out))
    with torch.inference_mode():
        module.forward_features(batch)
        hook.remove()
        joined = tokens[0] @ attn.qkv.weight.T
        joined += torch.cat([attn.q_bias, torch.zeros(64), attn.v_bias])
        query, key, _ = joined.reshape(17, 3, 4, 16).permute(1, 2, 0, 3)
        logits = query @ key.transpose(1, 2) / 4 + bias.permute(2, 0, 1)
        expected = logits.softmax(-1).numpy()
    assert np.abs(matrices(model, batch)[0] - expected).max() < TOLERANCE
    without = (query @ key.transpose(1, 2) / 4).softmax(-1).numpy()
    assert np.abs(without - expected).max() > 0.1


@pytest.mark.parametrize(
    "name", ["vit_relpos_small_patch16_224", "vit_srelpos_small_patch16_224",
             "vit_relpos_base_patch16_clsgap_224", "vit_relpos_small_patch16_rpn_224"]
)  # fmt: skip
def test_timms_vits_with_relative_positions(name, tmp_path):
    module = peaked(timm.create_model(name, depth=2, num_classes=0))
    torch.save(module.state_dict(), tmp_path / "weights.pth")
    model = package.load_model(name, checkpoint=tmp_path / "weights.pth", depth=2, device="cpu")
    for grid in ((14, 14), (3, 5)):
        batch = pixels(*grid)
        assert np.abs(matrices(model, batch) - theirs(module, batch)).max() < TOLERANCE


def test_files_of_beits_authors(made, tmp_path):
    """Their wrapping, the index that timm computes, and heads of pre-training."""
    module = made("shared")
    state = {k: v for k, v in module.state_dict().items() if not k.startswith("fc_norm")}
    extra = {
        "rel_pos_bias.relative_position_index": torch.zeros(17, 17, dtype=torch.long),
        "mask_token": torch.zeros(1, 1, 64),
        "lm_head.weight": torch.zeros(8, 64),
        "norm.weight": torch.ones(64),
        "norm.bias": torch.zeros(64),
        "cls_pt_layers.0.norm1.weight": torch.ones(64),
    }
    path = tmp_path / "beit_pretrained.pth"
    torch.save({"model": {f"module.{k}": v for k, v in (state | extra).items()}}, path)
    model = package.load_model(checkpoint=path, device="cpu")
    batch = pixels(3, 6)
    assert np.abs(matrices(model, batch) - theirs(module, batch)).max() < TOLERANCE
    assert model.info.heads == 4, "the table has a column per head"


def test_a_table_of_no_square_grid_asks_for_the_size(made, tmp_path):
    with pytest.raises(CheckpointError, match="45 relative positions do not fit a square grid"):
        loaded(made("wide"), tmp_path)


def test_commands_that_need_rows_logits_or_values_take_the_bias_into_account(made, tmp_path):
    module = made("BEiT")
    picture = tmp_path / "noise.png"
    noise = np.random.default_rng(5).integers(0, 256, (48, 96, 3), dtype=np.uint8)
    Image.fromarray(noise).save(picture)
    torch.save(module.state_dict(), tmp_path / "beit.pth")
    common = ("--checkpoint", tmp_path / "beit.pth", "--size", "original", "--save-data",
              "--dpi", 40, "--quiet", "--out", tmp_path)  # fmt: skip
    values = (noise / 255 - 0.5) / 0.5
    batch = torch.from_numpy(values.transpose(2, 0, 1).astype(np.float32).copy())[None]
    expected = theirs(module, batch)
    for command in ("heads", "rollout", "score", "matrix"):
        assert attnviz(command, picture, *common) == 0
    heads = arrays(tmp_path / "noise.heads.npz")["attention"]
    assert np.abs(heads.reshape(4, 18) - expected[-1, :, 0, 1:]).max() < TOLERANCE
    matrix = arrays(tmp_path / "noise.matrix.npz")["attention"]
    assert np.abs(matrix - expected[-1]).max() < TOLERANCE


@pytest.mark.parametrize(
    ("name", "grid"), [("BEiT", (4, 4)), ("shared", (3, 6)), ("CLS token", (7, 5))]
)
def test_queries_keys_and_biases_of_an_explorer_page(name, grid, made, tmp_path):
    """What a page holds gives timm's attention, within what the page promises."""
    module = made(name)
    batch = pixels(*grid)
    held = query_keys(loaded(module, tmp_path), batch)
    expected = theirs(module, batch)
    for layer, bias in enumerate(held.biases):
        assert bias.offsets.shape == (4, 2 * grid[0] - 1, 2 * grid[1] - 1)
        query, key = (torch.from_numpy(part[layer]) for part in (held.query, held.key))
        ours = (query @ key.mT + full_bias(bias)).softmax(-1).numpy()
        assert np.abs(ours - expected[layer]).max() < TOLERANCE
        packed = factorize(held.query[layer], held.key[layer], bias)
        query, key = (
            torch.from_numpy(part.astype(np.float32) * packed.step).permute(1, 2, 0)
            for part in (packed.query, packed.key)
        )
        ours = (query @ key.mT + full_bias(packed.bias)).softmax(-1).numpy()
        assert np.abs(ours - expected[layer]).max() < 2e-3


def test_timms_vits_with_relative_positions_have_pages(tmp_path):
    module = peaked(timm.create_model("vit_relpos_small_patch16_rpn_224", depth=2, num_classes=0))
    torch.save(module.state_dict(), tmp_path / "weights.pth")
    model = package.load_model(
        "vit_relpos_small_patch16_rpn_224", checkpoint=tmp_path / "weights.pth", depth=2,
        device="cpu",
    )  # fmt: skip
    held = query_keys(model, pixels(3, 5))
    query, key = (torch.from_numpy(part[1]) for part in (held.query, held.key))
    ours = (query @ key.mT + full_bias(held.biases[1])).softmax(-1).numpy()
    assert np.abs(ours - theirs(module, pixels(3, 5))[1]).max() < TOLERANCE
