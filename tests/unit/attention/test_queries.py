"""Queries other than CLS: registers, and the latent queries of attention pooling."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import timm
import torch

from attnviz.attention.checks import check_request
from attnviz.attention.maps import heads_maps, layers_maps
from attnviz.attention.pooling import pooling_call, pooling_weights, read_weights
from attnviz.attention.rollout import rollout_maps
from attnviz.domain import Query, RolloutOptions
from attnviz.domain.kinds import HeadsRequest, LayersRequest, RolloutRequest
from attnviz.errors import UnsupportedModelError, UsageError
from tests.helpers.planted import backbone_of, dense_attention, tiny_vit

BATCH = torch.randn(2, 3, 32, 24, generator=torch.Generator().manual_seed(0))  # 4 x 3 patches
NO_DISCARD = RolloutOptions(discard_ratio=0.0)


def pooled_vit(*, registers=0, include_prefix=False, latents=1, pool="token", qk_norm=False):
    """A small model without CLS that pools by attention, as SigLIP does."""
    torch.manual_seed(1)
    module = timm.models.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=0,
        class_token=False, global_pool="map", reg_tokens=registers, no_embed_class=True,
        dynamic_img_size=True, pool_include_prefix=include_prefix,
    )  # fmt: skip
    module.attn_pool = timm.layers.AttentionPoolLatent(
        32, num_heads=4, latent_len=latents, pool_type=pool, qk_norm=qk_norm,
        norm_layer=torch.nn.LayerNorm,
    )  # fmt: skip
    for block in module.blocks:
        torch.nn.init.normal_(block.attn.qkv.weight, std=0.3)
    torch.nn.init.normal_(module.attn_pool.latent)
    torch.nn.init.normal_(module.attn_pool.kv.weight, std=0.4)
    return backbone_of(
        module.eval().requires_grad_(False), registers=registers, cls=False, name="pooled"
    )


def unfused_weights(pool, tokens):
    """The pooling's weights (B, M, H, K), by timm's own code without its fused kernel."""
    seen = []
    original = torch.Tensor.softmax

    def spy(self, *args, **kwargs):
        seen.append(original(self, *args, **kwargs))
        return seen[-1]

    fused, pool.fused_attn = pool.fused_attn, False
    torch.Tensor.softmax = spy
    try:
        pool(tokens)
    finally:
        torch.Tensor.softmax, pool.fused_attn = original, fused
    return seen[-1].transpose(1, 2)


CASES = pytest.mark.parametrize(
    "options",
    [
        {},
        {"registers": 3},
        {"registers": 3, "include_prefix": True},
        {"latents": 3, "pool": "avg"},
        {"latents": 2, "qk_norm": True},
    ],
    ids=["plain", "registers-left-out", "registers-read", "mean-of-latents", "first-latent"],
)


@CASES
def test_the_weights_are_those_of_the_unfused_module(options):
    backbone = pooled_vit(**options)
    with torch.no_grad():
        tokens = backbone.run(BATCH)
        skipped = 0 if options.get("include_prefix") else backbone.info.prefix
        expected = unfused_weights(backbone.attention_pool, tokens[:, skipped:])
    found = pooling_weights(backbone, BATCH)
    assert found.shape == (2, options.get("latents", 1), 4, backbone.info.prefix + 12)
    assert (found[..., :skipped] == 0).all()
    np.testing.assert_allclose(found[..., skipped:], expected, atol=1e-5)


@CASES
def test_weights_times_values_through_the_projection_are_the_poolings_output(options):
    backbone = pooled_vit(**options)
    pool = backbone.attention_pool
    with torch.no_grad():
        tokens = backbone.run(BATCH)
        values = pooling_call(backbone, tokens).value  # B, H, K, d
        weights = pooling_weights(backbone, BATCH)[..., -values.shape[2] :]
        read = torch.einsum("bmhk,bhkd->bmhd", weights, values).flatten(2)
        out = pool.proj(read)
        out = out + pool.mlp(pool.norm(out))
        out = out[:, 0] if pool.pool == "token" else out.mean(dim=1)
        np.testing.assert_allclose(out, backbone.module.forward_head(tokens), atol=1e-5)
        np.testing.assert_allclose(out, backbone.pool(tokens), atol=1e-5)


@CASES
def test_heads_of_the_pooling(options):
    backbone = pooled_vit(**options)
    prefix, latents = backbone.info.prefix, options.get("latents", 1)
    weights = pooling_weights(backbone, BATCH).numpy()
    found = heads_maps(backbone, BATCH, HeadsRequest(query=Query.POOL, heads=(3, 1)))
    for maps, expected in zip(found, weights, strict=True):
        chosen = expected[:, [3, 1]].reshape(2 * latents, -1)
        np.testing.assert_array_equal(maps.attention.reshape(2 * latents, -1), chosen[:, prefix:])
        np.testing.assert_array_equal(maps.prefix, chosen[:, :prefix])
        np.testing.assert_allclose(maps.attention.sum((1, 2)) + maps.prefix.sum(1), 1, atol=1e-5)
        assert (maps.layer, maps.heads) == (2, (3, 1) * latents)
        several = None if latents == 1 else tuple(np.repeat(range(latents), 2))
        assert maps.latents == several
        assert len(set(maps.names)) == 2 * latents
        assert [row.get("latent", 0) for row in maps.rows()] == list(several or (0, 0))


@CASES
@pytest.mark.parametrize("distance", [False, True])
def test_layers_and_rollout_begin_with_what_the_pooling_reads(options, distance):
    backbone = pooled_vit(**options)
    prefix = backbone.info.prefix
    start = read_weights(backbone, pooling_weights(backbone, BATCH)).double().numpy()  # B, N
    np.testing.assert_allclose(start.sum(axis=1), 1, atol=1e-5)
    matrices = dense_attention(backbone, BATCH).double().numpy()  # L, B, H, N, N
    layers = layers_maps(backbone, BATCH, LayersRequest(query=Query.POOL, distance=distance))
    rolled = rollout_maps(backbone, BATCH, RolloutRequest(NO_DISCARD, query=Query.POOL))
    for image in range(2):
        rows = np.einsum("n,lhnm->lhm", start[image], matrices[:, image])
        found = layers[image]
        np.testing.assert_allclose(found.attention.reshape(2, 2, -1), rows[..., prefix:], atol=1e-5)
        np.testing.assert_allclose(found.prefix, rows[..., :prefix], atol=1e-5)
        first, second = (
            0.5 * np.eye(prefix + 12) + 0.5 * a.mean(axis=0) for a in matrices[:, image]
        )
        row = start[image] @ second @ first
        np.testing.assert_allclose(rolled[image].rollout.ravel(), row[prefix:], atol=1e-5)
        np.testing.assert_allclose(rolled[image].prefix, row[:prefix], atol=1e-5)
        np.testing.assert_allclose(rolled[image].last.ravel(), start[image][prefix:], atol=1e-6)


def test_the_first_latent_query_alone_is_read_where_the_output_is_its():
    weights = torch.tensor([[[[0.2, 0.8]], [[0.6, 0.4]]]])  # one image, two latents, one head
    first, mean = pooled_vit(latents=2), pooled_vit(latents=2, pool="avg")
    np.testing.assert_allclose(read_weights(first, weights), [[0.2, 0.8]])
    np.testing.assert_allclose(read_weights(mean, weights), [[0.4, 0.6]], atol=1e-7)


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("cls", [True, False])
def test_rows_of_a_register(number, cls):
    backbone = tiny_vit(registers=3, cls=cls)
    prefix = backbone.info.prefix
    token = int(cls) + number - 1
    matrices = dense_attention(backbone, BATCH).double().numpy()  # L, B, H, N, N
    query = Query(f"r{number}")
    for distance in (False, True):
        heads = heads_maps(backbone, BATCH, HeadsRequest(1, distance=distance, query=query))
        layers = layers_maps(backbone, BATCH, LayersRequest(distance=distance, query=query))
        for image in range(2):
            rows = matrices[:, image, :, token]
            found = layers[image].attention.reshape(3, 2, -1)
            np.testing.assert_allclose(found, rows[..., prefix:], atol=1e-5)
            one = heads[image].attention.reshape(2, -1)
            np.testing.assert_allclose(one, rows[1, :, prefix:], atol=1e-5)
            np.testing.assert_allclose(heads[image].prefix, rows[1, :, :prefix], atol=1e-5)
    for options in (NO_DISCARD, RolloutOptions(discard_ratio=1e-9)):
        (maps, _) = rollout_maps(backbone, BATCH, RolloutRequest(options, query=query))
        product = np.eye(prefix + 12)
        for a in matrices[:, 0]:
            product = (0.5 * np.eye(prefix + 12) + 0.5 * a.mean(axis=0)) @ product
        np.testing.assert_allclose(maps.rollout.ravel(), product[token, prefix:], atol=1e-5)
        last = matrices[-1, 0].mean(axis=0)[token, prefix:]
        np.testing.assert_allclose(maps.last.ravel(), last, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "request_", "error", "message"),
    [
        (tiny_vit, HeadsRequest(query=Query.POOL), UnsupportedModelError, "does not pool"),
        (tiny_vit, HeadsRequest(query=Query("r1")), UsageError, "has no registers"),
        (lambda: tiny_vit(registers=2), LayersRequest(query=Query("r3")), UsageError, "r1 to r2"),
        (pooled_vit, RolloutRequest(), UnsupportedModelError, "no CLS token"),
        (pooled_vit, HeadsRequest(0, query=Query.POOL), UsageError, "--layer 0 with --query pool"),
        (pooled_vit, HeadsRequest(heads=(4,), query=Query.POOL), UsageError, "heads 0 to 3"),
    ],
)
def test_what_a_model_does_not_have_is_refused(model, request_, error, message):
    with pytest.raises(error, match=message):
        check_request(model().info, request_)


def test_queries_are_one_object_a_text():
    assert Query("mean") is Query.MEAN
    assert pickle.loads(pickle.dumps(Query("r12"))) is Query("r12")
    assert (Query("r12").register, Query.POOL.register, str(Query.CLS)) == (12, None, "cls")
    assert HeadsRequest(query="pool").query is Query.POOL
    for wrong in ("r0", "r", "R1", "register", "", "r1 "):
        with pytest.raises(ValueError, match="not a query"):
            Query(wrong)


def test_pooling_of_the_eva_family():
    """PE-Core: rotary positions, a CLS token beside the pooling, and heads of its own number."""
    torch.manual_seed(0)
    module = timm.models.Eva(
        img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=0,
        class_token=True, global_pool="map", attn_pool_num_heads=4, attn_pool_mlp_ratio=4.0,
        dynamic_img_size=True,
    ).eval()  # fmt: skip
    backbone = backbone_of(module.requires_grad_(False))
    with torch.no_grad():
        expected = unfused_weights(backbone.attention_pool, backbone.run(BATCH))
    np.testing.assert_allclose(pooling_weights(backbone, BATCH), expected, atol=1e-5)
    assert heads_maps(backbone, BATCH, HeadsRequest(query=Query.POOL))[0].attention.shape == (
        4,
        4,
        3,
    )
