"""Output tokens against a plain forward pass of timm, and what is made of them, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz.attention.features import cosine, features_maps, output_tokens
from attnviz.domain.kinds import FeaturesRequest
from attnviz.errors import AttentionError, UsageError
from tests.helpers.planted import dense_attention, tiny_vit

CELLS = [[(0, 0), (3, 2)]]


def a_batch(count=1, seed=0):
    return torch.randn(count, 3, 32, 24, generator=torch.Generator().manual_seed(seed))


def after_each_block(backbone, batch):
    """timm's own answer: the tokens after every block, and after the final norm."""
    with torch.no_grad():
        final, between = backbone.module.forward_intermediates(
            batch, return_prefix_tokens=True, norm=False, output_fmt="NLC"
        )
        joined = [torch.cat([prefix, patches], dim=1) for patches, prefix in between]
    return final.numpy(), [tokens.numpy() for tokens in joined]


def test_the_cosine_by_hand():
    # (3, 4) and (4, 3): 24 / 25; (3, 4) and (-4, 3): a right angle; a zero token: 0 by definition.
    tokens = np.array([[3, 4], [4, 3], [-4, 3], [-6, -8], [0, 0]], np.float32)
    found = cosine(tokens, np.array([0, 4]))
    np.testing.assert_allclose(found, [[1, 0.96, 0, -1, 0], [0, 0, 0, 0, 0]], atol=1e-7)
    assert found.dtype == np.float32


@pytest.mark.parametrize("registers", [0, 4])
def test_tokens_norms_and_likeness_are_those_of_a_plain_forward(registers):
    backbone = tiny_vit(registers=registers)
    batch = a_batch(2)
    final, between = after_each_block(backbone, batch)
    found = features_maps(backbone, batch, FeaturesRequest(), CELLS * 2)
    for image, maps in enumerate(found):
        np.testing.assert_allclose(maps.tokens, final[image], atol=1e-5)
        norms = np.linalg.norm(between[-1][image], axis=1)
        np.testing.assert_allclose(maps.prefix_norm, norms[: 1 + registers], rtol=1e-5)
        np.testing.assert_allclose(maps.norm.ravel(), norms[1 + registers :], rtol=1e-5)
        patches = final[image][1 + registers :]
        expected = torch.nn.functional.cosine_similarity(
            torch.tensor(patches[3 * 3 + 2])[None], torch.tensor(patches)
        )
        np.testing.assert_allclose(maps.similarity[1].ravel(), expected, atol=1e-5)
        assert maps.layer is None
        assert maps.outliers is None


@pytest.mark.parametrize("layer", [0, 1, -1])
def test_a_layers_tokens_are_those_after_its_block(layer):
    backbone = tiny_vit(registers=2)
    batch = a_batch()
    _, between = after_each_block(backbone, batch)
    (maps,) = features_maps(backbone, batch, FeaturesRequest(layer=layer), CELLS)
    np.testing.assert_allclose(maps.tokens, between[layer][0], atol=1e-5)
    both = np.concatenate([maps.prefix_norm, maps.norm.ravel()])
    np.testing.assert_allclose(both, np.linalg.norm(between[layer][0], axis=1), rtol=1e-5)
    assert maps.layer == layer % 3


def test_components_are_those_of_an_svd_of_the_patches():
    backbone = tiny_vit(registers=2)
    (maps,) = features_maps(backbone, a_batch(), FeaturesRequest(), CELLS)
    patches = maps.tokens[3:].astype(np.float64)
    centred = patches - patches.mean(axis=0)
    left, stretch, axes = np.linalg.svd(centred, full_matrices=False)
    for place in range(3):
        sign = np.sign(axes[place][np.abs(axes[place]).argmax()])
        expected = sign * left[:, place] * stretch[place]
        np.testing.assert_allclose(maps.components[..., place].ravel(), expected, atol=1e-4)
    np.testing.assert_allclose(maps.explained, (stretch**2 / (stretch**2).sum())[:3], rtol=1e-5)


@pytest.mark.parametrize("cls", [True, False])
def test_the_foreground_is_the_side_that_is_looked_at(cls):
    backbone = tiny_vit(cls=cls)
    batch = a_batch(seed=3)
    request = FeaturesRequest(foreground=True)
    (maps,) = features_maps(backbone, batch, request, CELLS)
    (other,) = features_maps(
        backbone, batch, FeaturesRequest(foreground=True, flip_foreground=True), CELLS
    )
    prefix = int(cls)
    attention = dense_attention(backbone, batch)[-1, 0].mean(dim=0).numpy()  # N, N
    row = attention[0, 1:] if cls else attention.mean(axis=0)
    inside = maps.foreground.ravel()
    assert 0 < inside.sum() < inside.size
    assert row[inside].mean() > row[~inside].mean()
    np.testing.assert_array_equal(maps.foreground, maps.first > 0)
    np.testing.assert_array_equal(other.foreground, ~maps.foreground)
    patches = maps.tokens[prefix:][inside].astype(np.float64)
    values = np.linalg.svd(patches - patches.mean(axis=0), compute_uv=False) ** 2
    np.testing.assert_allclose(maps.explained, (values / values.sum())[:3], rtol=1e-4)
    assert not maps.components[~maps.foreground].any()
    assert maps.components[maps.foreground].any()


def test_the_table_calls_prefix_tokens_by_their_names():
    (maps,) = features_maps(tiny_vit(registers=2), a_batch(), FeaturesRequest(), CELLS)
    assert [row["token"] for row in maps.rows()] == ["CLS", "R1", "R2", "patches"]


def test_outliers_are_above_the_threshold():
    backbone = tiny_vit()
    (plain,) = features_maps(backbone, a_batch(), FeaturesRequest(), CELLS)
    middle = float(np.median(plain.norm))
    (maps,) = features_maps(backbone, a_batch(), FeaturesRequest(outlier_threshold=middle), CELLS)
    np.testing.assert_array_equal(maps.outliers, plain.norm > middle)
    assert 0 < maps.outliers.sum() < maps.outliers.size


@pytest.mark.parametrize("layer", [None, 1])
def test_hooks_are_taken_off_and_nothing_of_the_model_changes(layer):
    backbone = tiny_vit()
    output_tokens(backbone, a_batch(), layer)
    assert not any(block._forward_hooks for block in backbone.blocks)
    broken = torch.full((1, 3, 32, 24), float("nan"))
    with pytest.raises(AttentionError, match="not finite"):
        output_tokens(backbone, broken, layer)
    assert not any(block._forward_hooks for block in backbone.blocks)


def test_blocks_after_the_asked_layer_do_not_run():
    backbone = tiny_vit()

    def refuse(*_):
        raise AssertionError("ran")

    handle = backbone.blocks[2].register_forward_hook(refuse)
    output_tokens(backbone, a_batch(), 1)
    with pytest.raises(AssertionError, match="ran"):
        output_tokens(backbone, a_batch(), 2)
    handle.remove()


def test_another_number_of_tokens_is_refused(monkeypatch):
    backbone = tiny_vit()
    run = backbone.run
    monkeypatch.setattr(backbone, "run", lambda batch: run(batch)[:, 1:])
    with pytest.raises(AttentionError, match=r"expected 1 prefix tokens and 4x3 patches \(13\)"):
        output_tokens(backbone, a_batch(), None)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (FeaturesRequest(layer=3), "layer 3 does not exist"),
        (FeaturesRequest(outlier_threshold=0), "above 0"),
    ],
)
def test_what_no_model_can_do(request_, said):
    with pytest.raises(UsageError, match=said):
        features_maps(tiny_vit(), a_batch(), request_, CELLS)


def test_a_foreground_that_was_not_asked_for_cannot_be_flipped():
    with pytest.raises(UsageError, match="needs --foreground"):
        FeaturesRequest(flip_foreground=True)
