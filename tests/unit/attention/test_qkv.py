"""Queries, keys and values against the outputs of timm's own modules, and their components."""

from __future__ import annotations

import math

import numpy as np
import pytest
import timm
import torch

from attnviz.attention.qkv import qkv_maps
from attnviz.domain import Part
from attnviz.domain.kinds import QkvRequest
from attnviz.errors import AttentionError, UsageError
from tests.helpers.planted import backbone_of, plain_qkv, tiny_vit


def batch_of(height=24, width=40, images=1, seed=1):
    return torch.randn(images, 3, height, width, generator=torch.Generator().manual_seed(seed))


def svd_scores(tokens, count=3):
    """Scores and explained ratios of (T, D) by numpy's SVD, signs by the largest loading."""
    centred = tokens - tokens.mean(axis=0)
    _, stretch, axes = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(axes[np.arange(count), np.abs(axes[:count]).argmax(axis=1)])
    return centred @ (axes[:count] * signs[:, None]).T, stretch[:count] ** 2 / (stretch**2).sum()


@pytest.mark.parametrize("registers", [0, 4])
def test_vectors_are_those_of_the_model_s_own_projection(registers):
    backbone = tiny_vit(registers=registers)
    batch = batch_of(images=2)
    own = plain_qkv(backbone, batch, 1)
    for image, maps in enumerate(qkv_maps(backbone, batch, QkvRequest(1))):
        assert maps.parts == ("q", "k", "v")
        assert (maps.prefix, maps.tokens) == (1 + registers, 16 + registers)
        assert maps.vectors == pytest.approx(own[:, image], abs=1e-5)
        assert maps.norms == pytest.approx(np.linalg.norm(own[:, image], axis=-1), rel=1e-5)


def test_components_are_of_the_patches_each_head_alone_and_all_joined():
    backbone = tiny_vit(registers=4)
    batch = batch_of(48, 72)
    own = plain_qkv(backbone, batch, 2)[:, 0, :, 5:]  # 3, H, n, d
    (maps,) = qkv_maps(backbone, batch, QkvRequest())
    assert maps.components.shape == (3, 2, 6, 9, 3)
    for part in range(3):
        for head in range(2):
            scores, ratios = svd_scores(own[part, head])
            assert maps.components[part, head].reshape(-1, 3) == pytest.approx(scores, abs=1e-4)
            assert maps.explained[part, head] == pytest.approx(ratios, rel=1e-5)
        joined = np.concatenate(list(own[part]), axis=1)  # n, H*d
        scores, ratios = svd_scores(joined)
        assert maps.joint_components[part].reshape(-1, 3) == pytest.approx(scores, abs=1e-4)
        assert maps.joint_explained[part] == pytest.approx(ratios, rel=1e-5)


def test_rotary_embedding_is_in_queries_and_keys_and_not_in_values():
    """A rotation keeps every length, leaves the prefix alone, and turns the patches."""
    torch.manual_seed(0)
    module = timm.create_model("vit_small_patch16_dinov3", depth=1, num_classes=0, img_size=64)
    module = module.eval().requires_grad_(False)
    torch.nn.init.normal_(module.blocks[0].attn.qkv.weight, std=0.05)
    backbone = backbone_of(module, registers=4)
    batch = batch_of(64, 64)
    own = plain_qkv(backbone, batch, 0)[:, 0]
    (maps,) = qkv_maps(backbone, batch, QkvRequest())
    assert maps.norms == pytest.approx(np.linalg.norm(own, axis=-1), rel=1e-4)
    assert maps.vectors[2] == pytest.approx(own[2], abs=1e-5)
    for part in (0, 1):
        assert maps.vectors[part][:, :5] == pytest.approx(own[part][:, :5], abs=1e-5)
        turned = np.linalg.norm(maps.vectors[part] - own[part], axis=-1)[:, 5:]
        assert turned.max() > 0.1 * maps.norms[part].mean()


def test_normed_queries_have_the_length_of_their_norm():
    """With q/k norms of weight 1 and bias 0 each vector of width d has the length sqrt(d)."""
    backbone = tiny_vit(qk_norm=True)
    (maps,) = qkv_maps(backbone, batch_of(), QkvRequest())
    assert maps.norms[:2] == pytest.approx(math.sqrt(16), rel=1e-3)
    assert np.ptp(maps.norms[2]) > 0.1


def test_the_table_says_shape_mean_and_deviation_of_each_head_and_of_all():
    backbone = tiny_vit()
    batch = batch_of()
    own = plain_qkv(backbone, batch, 2)[:, 0]
    (maps,) = qkv_maps(backbone, batch, QkvRequest(heads=(1, 0)))
    rows = maps.rows()
    assert [(row["part"], row["head"]) for row in rows[:4]] == [
        ("q", "1"), ("q", "0"), ("q", "all"), ("k", "1"),
    ]  # fmt: skip
    first, joined = rows[0], rows[2]
    assert (first["tokens"], first["width"]) == (16, 16)
    assert (joined["tokens"], joined["width"]) == (16, 32)
    assert first["mean"] == pytest.approx(own[0, 1].mean(), abs=1e-6)
    assert first["std"] == pytest.approx(own[0, 1].std(), rel=1e-5)
    assert joined["std"] == pytest.approx(own[0].std(), rel=1e-5)
    lengths = np.linalg.norm(np.concatenate(list(own[0]), axis=1), axis=1)
    assert joined["norm_mean"] == pytest.approx(lengths.mean(), rel=1e-5)
    assert joined["norm_max"] == pytest.approx(lengths.max(), rel=1e-5)


def test_parts_and_heads_as_asked():
    (maps,) = qkv_maps(tiny_vit(), batch_of(), QkvRequest(heads=(-1,), parts=("v", "q", "v")))
    assert maps.parts == (Part.VALUE, Part.QUERY)
    assert maps.heads == (1,)
    (whole,) = qkv_maps(tiny_vit(), batch_of(), QkvRequest())
    assert (maps.vectors[0] == whole.vectors[2, 1:]).all()
    assert (maps.joint_components[1] == maps.components[1, 0]).all()


def test_what_cannot_be_asked_or_shown():
    with pytest.raises(UsageError, match="layer 3 does not exist"):
        qkv_maps(tiny_vit(), batch_of(), QkvRequest(layer=3))
    with pytest.raises(UsageError, match="no part"):
        QkvRequest(parts=())
    with pytest.raises(AttentionError, match="not finite"):
        qkv_maps(tiny_vit(), batch_of() * math.nan, QkvRequest())
