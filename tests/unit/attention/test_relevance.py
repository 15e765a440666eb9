"""Relevance against numbers worked by hand, and against torch's own gradient of every matrix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cosine_similarity

from attnviz.attention import blocks
from attnviz.attention.capture import capture
from attnviz.attention.gradients import LayerGradient, attention_gradients
from attnviz.attention.relevance import carry, reference_of, relevance_maps
from attnviz.attention.verify import verify
from attnviz.domain import Box, FigureImage, FitGeometry, RelevanceMethod, Size
from attnviz.domain.kinds import RelevanceRequest
from attnviz.errors import AttentionError, UsageError
from attnviz.models.head import ClassHead, Part
from attnviz.models.precision import cast
from tests.helpers.planted import backbone_of, planted_call, random_stochastic, tiny_vit

BY_GRADIENT = CHEFER, ROLLOUT = RelevanceMethod.CHEFER, RelevanceMethod.GRADIENT_ROLLOUT
CLS = torch.tensor([1.0, 0.0])
SECOND = FigureImage(
    np.zeros((32, 32, 3), np.uint8),
    FitGeometry(Size(32, 32), Size(32, 32), 8, Box(0, 0, 32, 32)),
    "second.png",
)


def planted(attention, value, gradient):
    """A layer of heads of width 1: attention (H, N, N), value and output gradient (H, N)."""
    call = planted_call(attention)
    value = torch.tensor(value, dtype=torch.float32)[None, :, :, None]
    return LayerGradient(
        replace(call, value=value), torch.tensor(gradient, dtype=torch.float32)[None, :, :, None]
    )


# Two tokens, two heads. The target reads CLS, so the last layer's gradient is (1, 0) in each head.
# Head 0: G = dO V^T = [[1, -2], [0, 0]], G * A = [[.6, -.8], [0, 0]]
# Head 1: G           = [[2,  4], [0, 0]], G * A = [[1,    2], [0, 0]]
LAST = planted(
    [[[0.6, 0.4], [0.3, 0.7]], [[0.5, 0.5], [0.5, 0.5]]], [[1, -2], [2, 4]], [[1, 0], [1, 0]]
)
# Both heads alike: G = [[2, 2], [10, 10]], G * A = [[1, 1], [2, 8]]
FIRST = planted([[[0.5, 0.5], [0.2, 0.8]]] * 2, [[1, 1]] * 2, [[2, 10]] * 2)


@pytest.mark.parametrize(
    ("layers", "heads", "method", "expected"),
    [
        # The mean of the heads' positive parts: (.6 + 1) / 2 and (0 + 2) / 2.
        ([LAST], (0, 1), CHEFER, [0.8, 1.0]),
        ([LAST], (0,), CHEFER, [0.6, 0.0]),
        ([LAST], (1,), CHEFER, [1.0, 2.0]),
        # The positive part of the mean, (.8, .6); with the identity (1.8, .6), which sum to 2.4.
        ([LAST], (0, 1), ROLLOUT, [0.75, 0.25]),
        ([LAST], (0,), ROLLOUT, [1.0, 0.0]),
        # r F = (1.8, 1) [[1, 1], [2, 8]] = (3.8, 9.8), on top of (.8, 1).
        ([FIRST, LAST], (0, 1), CHEFER, [4.6, 10.8]),
        # The first layer's rows are (2/3, 1/3) and (2/11, 9/11), of which r takes .75 and .25.
        ([FIRST, LAST], (0, 1), ROLLOUT, [6 / 11, 5 / 11]),
    ],
)
def test_two_tokens_by_hand(layers, heads, method, expected):
    np.testing.assert_allclose(carry(layers, CLS, heads, method), expected, rtol=1e-5)


def test_the_mean_of_two_rows_is_read():
    both = carry([LAST], torch.tensor([0.5, 0.5]), (0, 1), CHEFER)
    np.testing.assert_allclose(both, [0.4, 0.5], rtol=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(1, 3), st.integers(1, 3))
def test_without_a_gradient_nothing_is_relevant_but_cls_to_itself(seed, tokens, heads, depth):
    rng = np.random.default_rng(seed)
    layers = [
        planted(
            random_stochastic(rng, heads, tokens, tokens),
            rng.standard_normal((heads, tokens)),
            np.zeros((heads, tokens)),
        )
        for _ in range(depth)
    ]
    one_hot = torch.eye(tokens)[0]
    assert not carry(layers, one_hot, range(heads), CHEFER).any()
    assert torch.equal(carry(layers, one_hot, range(heads), ROLLOUT), one_hot)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 100))
def test_relevance_is_never_negative_and_gradient_rollout_sums_to_one(seed, strength):
    rng = np.random.default_rng(seed)
    layers = [
        planted(
            random_stochastic(rng, 2, 6, 6),
            rng.standard_normal((2, 6)),
            strength * rng.standard_normal((2, 6)),
        )
        for _ in range(3)
    ]
    for method in BY_GRADIENT:
        found = carry(layers, torch.eye(6)[0], (0, 1), method)
        assert (found >= 0).all()
    assert found.sum() == pytest.approx(1, abs=1e-5)


# --- whole models, against matrices whose gradient torch keeps itself ---------------------------


def dense(backbone, batch, target):
    """Attention and gradient of every layer (L, B, H, N, N), float64: timm's unfused code."""
    found = []

    def keep(_module, _inputs, output):
        output.retain_grad()
        found.append(output)

    modules = [block.attn for block in backbone.module.blocks]
    handles = [module.attn_drop.register_forward_hook(keep) for module in modules]
    for module in modules:
        module.fused_attn = False
    try:
        batch = batch.clone().requires_grad_()
        values = target(backbone.run(batch))
        values.sum().backward()
    finally:
        for handle in handles:
            handle.remove()
        for module in modules:
            module.fused_attn = True
    matrices = torch.stack(found).detach().double().numpy()
    gradients = torch.stack([each.grad for each in found]).double().numpy()
    return values.detach().numpy(), matrices, gradients


def by_definition(attention, gradient, reads, method):
    """Word for word, on (L, H, N, N) float64 matrices: the row of the product."""
    tokens = attention.shape[-1]
    product = np.eye(tokens)
    for matrix, weights in zip(attention, gradient, strict=True):
        if method is CHEFER:
            product = product + np.maximum(weights * matrix, 0).mean(axis=0) @ product
        else:
            mixed = np.maximum((weights * matrix).mean(axis=0), 0) + np.eye(tokens)
            product = mixed / mixed.sum(axis=1, keepdims=True) @ product
    return reads @ product - (reads if method is CHEFER else 0)


def assert_as_defined(maps, value, attention, gradient, reads):
    expected = by_definition(attention, gradient, reads, maps.method)
    ours = np.concatenate([maps.prefix, maps.relevance.ravel()])
    assert np.abs(expected).max() > 1e-4
    np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=1e-5 * np.abs(expected).max())
    assert maps.value == pytest.approx(value, rel=1e-5)


def noise(images, seed=1):
    return torch.randn(images, 3, 24, 40, generator=torch.Generator().manual_seed(seed))


def pooled(backbone, tokens):
    info = backbone.info
    return tokens[:, 0] if info.has_cls else tokens[:, info.prefix :].mean(dim=1)


def reads_of(backbone, tokens):
    if backbone.info.has_cls:
        return np.eye(tokens)[0]
    reads = np.zeros(tokens)
    reads[backbone.info.prefix :] = 1 / (tokens - backbone.info.prefix)
    return reads


@pytest.mark.parametrize("rows", [256, 3])
@pytest.mark.parametrize("method", BY_GRADIENT)
@pytest.mark.parametrize("kind", [{}, {"registers": 4}, {"cls": False}, {"init_values": 0.5}])
def test_likeness_agrees_with_torchs_gradient_of_every_matrix(kind, method, rows, monkeypatch):
    monkeypatch.setattr(blocks, "CPU_BLOCK_ROWS", rows)
    backbone = tiny_vit(**kind)
    batch, second = noise(2), noise(1, seed=2)
    reference = reference_of(backbone, second, SECOND)
    with torch.no_grad():
        feature = pooled(backbone, backbone.run(second))
    values, attention, gradient = dense(
        backbone, batch, lambda tokens: cosine_similarity(pooled(backbone, tokens), feature)
    )
    request = RelevanceRequest(method=method, like="second.png")
    for image, maps in enumerate(relevance_maps(backbone, batch, request, reference)):
        matrices = attention[:, image], gradient[:, image]
        assert_as_defined(maps, values[image], *matrices, reads_of(backbone, attention.shape[-1]))
        assert (maps.class_index, maps.like) == (None, SECOND)
        assert maps.relevance.shape == (3, 5)


@pytest.mark.parametrize("method", BY_GRADIENT)
def test_a_class_agrees_with_torchs_gradient_of_every_matrix(method):
    backbone = tiny_vit(registers=2)
    rng = torch.Generator().manual_seed(3)
    weight, bias = torch.randn(5, 64, generator=rng) / 8, torch.randn(5, generator=rng)
    # CLS beside the mean patch: both are read, each with half of the weight.
    parts = (Part(slice(0, 1), weight[:, :32]), Part(slice(3, None), weight[:, 32:]))
    backbone.head = ClassHead(parts, bias, torch.nn.Identity())
    backbone.info = replace(backbone.info, classes=5)

    def logits(tokens):
        return torch.cat([tokens[:, 0], tokens[:, 3:].mean(dim=1)], dim=1) @ weight.T + bias

    batch = noise(1)
    values, attention, gradient = dense(backbone, batch, lambda tokens: logits(tokens)[:, 2])
    request = RelevanceRequest(method=method, class_index=2, heads=(1,))
    (maps,) = relevance_maps(backbone, batch, request, None)
    reads = np.full(18, 1 / 30)
    reads[:3] = 0.5, 0, 0
    assert_as_defined(maps, values[0], attention[:, 0, 1:], gradient[:, 0, 1:], reads)
    with torch.no_grad():
        probability = logits(backbone.run(batch)).softmax(dim=-1)[0, 2]
    assert maps.probability == pytest.approx(float(probability), rel=1e-5)
    assert (maps.class_index, maps.like, maps.heads) == (2, None, (1,))


def test_a_layer_gradient_is_that_of_the_whole_matrix():
    """G itself, before it is multiplied or fused."""
    backbone = tiny_vit()
    batch = noise(1)

    def target(tokens):
        return tokens[:, 0, 3]

    _, attention, gradient = dense(backbone, batch, target)
    _, layers = attention_gradients(backbone, batch, target)
    for layer, matrix, expected in zip(layers, attention, gradient, strict=True):
        for block, weighted in layer.of_image(0).weighted_blocks():
            wanted = (matrix * expected)[0, :, block.rows]
            np.testing.assert_allclose(weighted, wanted, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("method", BY_GRADIENT)
def test_a_gradient_of_another_layer_gives_another_map(method):
    """Hooks collect gradients on the way back, last layer first: paired in that order, the map is
    wrong, and not by a little.
    """
    backbone = tiny_vit(depth=4)
    _, attention, gradient = dense(backbone, noise(1), lambda tokens: tokens[:, 0, 3])
    reads = np.eye(16)[0]
    right = by_definition(attention[:, 0], gradient[:, 0], reads, method)[1:]
    wrong = by_definition(attention[:, 0], gradient[::-1, 0], reads, method)[1:]
    assert np.abs(right / right.sum() - wrong / wrong.sum()).sum() > 0.1


def test_likeness_to_itself_has_no_gradient():
    """The cosine is at its highest, 1: nothing could make the pictures more alike."""
    backbone = tiny_vit()
    batch = noise(1)
    (maps,) = relevance_maps(
        backbone, batch, RelevanceRequest(like="same.png"), reference_of(backbone, batch, SECOND)
    )
    assert maps.value == pytest.approx(1, abs=1e-6)
    assert maps.relevance.max() < 1e-5


def test_a_pass_without_gradients_before_it_changes_nothing():
    """Positions and rotations that were made without gradients are used in a pass with them."""
    import timm

    module = timm.create_model(
        "vit_small_patch16_dinov3", embed_dim=64, num_heads=2, depth=2, num_classes=0,
        dynamic_img_size=True,
    ).eval().requires_grad_(False)  # fmt: skip
    backbone = backbone_of(module, registers=4)
    batch = torch.randn(1, 3, 48, 80, generator=torch.Generator().manual_seed(1))
    capture(backbone, batch, 1, lambda call: None)
    verify(backbone, batch)
    reference = reference_of(backbone, batch.flip(-1), SECOND)
    request = RelevanceRequest(like="second.png")
    before, after = (relevance_maps(backbone, batch, request, reference)[0] for _ in range(2))
    np.testing.assert_array_equal(before.relevance, after.relevance)
    capture(backbone, batch, 1, lambda call: None)
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_float16_is_refused_and_a_broken_gradient_found():
    half = tiny_vit().module
    cast(half, torch.float16)
    with pytest.raises(UsageError, match="vanish in float16"):
        attention_gradients(backbone_of(half), noise(1), lambda tokens: tokens[:, 0, 0])
    backbone = tiny_vit()
    with pytest.raises(AttentionError, match="not finite"):
        attention_gradients(backbone, noise(1), lambda tokens: tokens[:, 0, 0] * float("nan"))


@pytest.mark.parametrize(
    ("request_", "classes", "message"),
    [
        (RelevanceRequest(class_index=1), 0, "has no classifier"),
        (RelevanceRequest(class_index=5), 5, "has classes 0 to 4"),
        (RelevanceRequest(class_index=-1), 5, "has classes 0 to 4"),
        (RelevanceRequest(class_index=1, heads=(7,)), 5, "head 7 does not exist"),
    ],
)
def test_a_target_that_the_model_does_not_have_is_refused(request_, classes, message):
    backbone = tiny_vit()
    backbone.info = replace(backbone.info, classes=classes, random_weights=False)
    with pytest.raises(UsageError, match=message):
        relevance_maps(backbone, noise(1), request_, None)


@pytest.mark.parametrize(
    ("target", "message"),
    [({}, "needs a target"), ({"class_index": 1, "like": "a.png"}, "exclude each other")],
)
def test_a_request_has_one_target(target, message):
    with pytest.raises(UsageError, match=message):
        RelevanceRequest(**target)
