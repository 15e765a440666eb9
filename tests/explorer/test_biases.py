"""Pages of models that add a bias of relative positions to their logits (BEiT)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz.attention.arrays import TokenLayout
from attnviz.attention.relative_bias import full_bias, relative_bias
from attnviz.domain import Size
from attnviz.output.diff import compare
from tests.explorer.pages import facts, made_by_command
from tests.explorer.test_diff import changed
from tests.helpers.command_line import arrays
from tests.helpers.photos import save_scene
from tests.reference.unfused import peaked

WITHIN = 2e-3


@pytest.fixture(scope="session")
def beit_page(tmp_path_factory):
    """The page of an image of 48 x 80, 3 x 5 cells, and what the other commands save of it."""
    import timm

    folder = tmp_path_factory.mktemp("beit")
    module = timm.create_model(
        "beit_base_patch16_224", img_size=64, embed_dim=64, depth=3, num_heads=4, num_classes=0
    )
    torch.save(peaked(module).state_dict(), folder / "beit.pth")
    image = save_scene(folder / "a.png", 48, 80)
    return made_by_command(
        image, "--checkpoint", "beit.pth", "--size", "original", "--save-data",
        cells=("0,0", "2,3"),
    )  # fmt: skip


@pytest.mark.parametrize("grid", [Size(3, 5), Size(4, 1)])
@pytest.mark.parametrize("prefix", [0, 1, 5])
def test_a_bias_is_taken_apart_and_put_together(grid, prefix):
    patches, heads = grid.height * grid.width, 2
    generator = torch.Generator().manual_seed(prefix)
    offsets = torch.randn(heads, 2 * grid.height - 1, 2 * grid.width - 1, generator=generator)
    mask = torch.randn(heads, prefix + patches, prefix + patches, generator=generator)
    for i in range(patches):
        for j in range(patches):
            down, across = i // grid.width - j // grid.width, i % grid.width - j % grid.width
            mask[:, prefix + i, prefix + j] = offsets[
                :, down + grid.height - 1, across + grid.width - 1
            ]
    layout = TokenLayout(prefix, grid, 16)
    bias = relative_bias(mask, layout)
    assert bias is not None
    np.testing.assert_array_equal(bias.offsets, offsets.numpy())
    assert torch.equal(full_bias(bias), mask)
    mask[1, prefix, prefix] += 1e-6 + mask[1, prefix, prefix].abs()
    if patches > 1:
        assert relative_bias(mask, layout) is None


def test_the_page_computes_attention_with_the_bias(show, beit_page):
    opened = show(beit_page)
    assert facts(beit_page)["biases"] == [0, 1, 2]
    saved = beit_page.parent / "saved"
    layers = arrays(saved / "saved.layers.npz")
    for layer in range(3):
        row = opened.attention(layer, 0)
        assert np.abs(row[:, 1:].reshape(4, 3, 5) - layers["attention"][layer]).max() < WITHIN
        assert np.abs(row[:, :1] - layers["prefix"][layer]).max() < WITHIN
    patch = arrays(saved / "saved.patch.npz")
    for query, (r, c) in enumerate(patch["cells"]):
        row = opened.attention(2, int(1 + r * 5 + c))
        assert np.abs(row[:, 1:].reshape(4, 3, 5) - patch["attention"][query]).max() < WITHIN
        assert patch["attention"][query].std() > 0.02


def test_another_bias_is_another_page(beit_page, tmp_path):
    import base64
    import zlib

    from tests.explorer.pages import blocks

    values = np.frombuffer(
        zlib.decompress(base64.b64decode(blocks(beit_page)["bias-1"])), "<f4"
    ).copy()
    same = changed(
        beit_page, tmp_path / "same.html",
        bias_1=base64.b64encode(zlib.compress(values.tobytes(), 1)).decode(),
    )  # fmt: skip
    assert same.read_bytes() != beit_page.read_bytes()
    assert compare(beit_page, same, 0.5) is None
    values[: len(values) // 2] += np.linspace(0, 0.3, len(values) // 2, dtype="<f4")
    other = changed(
        beit_page, tmp_path / "other.html",
        bias_1=base64.b64encode(zlib.compress(values.tobytes())).decode(),
    )  # fmt: skip
    assert compare(beit_page, other, 0.5).words.startswith("attention of layer 1 differs by")
