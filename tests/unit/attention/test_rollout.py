"""Rollout against matrices worked by hand."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch

from attnviz.attention import rollout
from attnviz.attention.checks import check_rollout_options
from attnviz.attention.layer_matrix import MatrixPool, layer_matrix, pool_of, push_rows
from attnviz.attention.rollout import rollout_maps
from attnviz.domain import DiscardOrder, Fusion, Query, RolloutOptions
from attnviz.domain.kinds import RolloutRequest
from attnviz.errors import UsageError
from tests.helpers.planted import dense_attention, planted_call, random_stochastic, tiny_vit

A1 = [[0.2, 0.5, 0.3], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2]]
A2 = [[0.6, 0.1, 0.3], [0.25, 0.5, 0.25], [0.1, 0.1, 0.8]]
PAPER = RolloutOptions(discard_ratio=0)


def one_hot(tokens):
    vector = torch.zeros(1, tokens)
    vector[0, 0] = 1
    return vector


def passed(matrices, options, vector=None, heads=(0,)):
    """The CLS row through planted layers, the last one first."""
    vector = one_hot(len(matrices[0][0])) if vector is None else vector
    for layer in reversed(matrices):
        call = planted_call(layer)
        matrix = torch.full((vector.shape[1],) * 2, 7.0)  # what was there before does not count
        heads = range(call.query.shape[1])
        vector = layer_matrix(call, heads, options, matrix).push(vector)
    return vector[0].numpy()


def dense_rollout(attention, options):
    """The definition, word for word, on (L, H, N, N) float64 matrices: the product's CLS row."""
    fuse = {Fusion.MEAN: np.mean, Fusion.MAX: np.max, Fusion.MIN: np.min}[options.fusion]
    tokens = attention.shape[-1]
    product = np.eye(tokens)
    for layer in attention[options.start_layer :]:
        fused = fuse(layer, axis=0)
        if options.discard is DiscardOrder.BEFORE:
            fused = discarded(fused, options.discard_ratio)
        mixed = options.residual * np.eye(tokens) + (1 - options.residual) * fused
        mixed /= mixed.sum(axis=1, keepdims=True)
        if options.discard is DiscardOrder.AFTER:
            mixed = discarded(mixed, options.discard_ratio)
            lost = mixed.sum(axis=1) == 0
            mixed[lost] = np.eye(tokens)[lost]  # a row that lost all looks at itself
            mixed /= mixed.sum(axis=1, keepdims=True)
        product = mixed @ product
    return product[0]


def discarded(matrix, ratio):
    k = int(matrix.size * ratio)
    if k == 0:
        return matrix
    return np.where(matrix < np.sort(matrix.ravel())[k - 1], 0, matrix)


def test_two_layers_multiply_in_the_right_order_with_the_residual():
    np.testing.assert_allclose(passed([[A1], [A2]], PAPER), [0.5125, 0.27, 0.2175], atol=1e-6)


def test_the_other_readings_give_other_numbers():
    reversed_order = passed([[A2], [A1]], PAPER)
    np.testing.assert_allclose(reversed_order, [0.51875, 0.225, 0.25625], atol=1e-6)
    no_residual = passed([[A1], [A2]], RolloutOptions(residual=0, discard_ratio=0))
    np.testing.assert_allclose(no_residual, [0.25, 0.48, 0.27], atol=1e-6)


def test_identity_layers_leave_everything_on_cls():
    np.testing.assert_allclose(passed([[np.eye(4)]] * 3, PAPER), [1, 0, 0, 0], atol=1e-6)


def test_rows_are_normalised_by_their_own_sums():
    """Five tokens after a discard: row sums differ, so a division along columns would show."""
    dropped = torch.tensor([
        [0.178218, 0.108911, 0.495050, 0.168317, 0],
        [0, 0.606061, 0.292929, 0, 0],
        [0.14, 0.51, 0, 0.31, 0],
        [0, 0, 0, 0.2, 0.7],
        [0, 0.63, 0, 0, 0.25],
    ])  # fmt: skip
    out = torch.zeros(1, 5)
    push_rows(one_hot(5), slice(0, 5), dropped, 1.0, 1.0, out)
    expected = [0.604061, 0.055838, 0.253807, 0.086294, 0]
    np.testing.assert_allclose(out[0], expected, atol=1e-6)


def test_a_row_that_loses_everything_passes_its_share_to_itself():
    out = torch.zeros(1, 3)
    chunk = torch.tensor([[0.0, 0.0, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])
    push_rows(torch.tensor([[0.5, 0.5, 0.0]]), slice(0, 3), chunk, 0.0, 1.0, out)
    np.testing.assert_allclose(out[0], [0.6, 0.4, 0.0], atol=1e-6)


@pytest.mark.parametrize("fusion", list(Fusion))
@pytest.mark.parametrize("order", list(DiscardOrder))
@pytest.mark.parametrize("ratio", [0, 0.5, 0.9, 0.999])
def test_every_option_agrees_with_the_definition(fusion, order, ratio):
    rng = np.random.default_rng(3)
    attention = random_stochastic(rng, 4, 3, 11, 11)
    options = RolloutOptions(fusion=fusion, discard=order, discard_ratio=ratio, residual=0.3)
    ours = passed(list(attention.astype(np.float32)), options)
    np.testing.assert_allclose(ours, dense_rollout(attention, options), atol=2e-5)
    assert ours.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("registers", [0, 4])
@pytest.mark.parametrize("options", [
    PAPER,
    RolloutOptions(),
    RolloutOptions(fusion=Fusion.MAX, discard=DiscardOrder.BEFORE),
    RolloutOptions(start_layer=1, discard_ratio=0),
])  # fmt: skip
@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_a_model_agrees_with_its_dense_matrices(registers, options, limit, monkeypatch):
    """Kept matrices and matrices made again give the definition's row, at every depth."""
    monkeypatch.setattr(rollout, "KEEP_LIMIT_BYTES", limit)
    backbone = tiny_vit(registers=registers)
    batch = torch.randn(2, 3, 24, 40, generator=torch.Generator().manual_seed(1))
    dense = dense_attention(backbone, batch).double().numpy()
    request = RolloutRequest(options=options, depths=(1,))
    for image, maps in enumerate(rollout_maps(backbone, batch, request)):
        assert maps.depths == (1, 2)
        for place, depth in enumerate(maps.depths):
            row = dense_rollout(dense[: depth + 1, image], options)
            ours = np.concatenate([maps.at_depth_prefix[place], maps.at_depth[place].ravel()])
            np.testing.assert_allclose(ours, row, atol=2e-5)
        np.testing.assert_allclose(
            maps.last.ravel(), dense[-1, image, :, 0, 1 + registers :].mean(axis=0), atol=1e-6
        )


def test_the_mean_query_is_the_mean_over_the_patches_rollouts():
    backbone = tiny_vit(cls=False)
    batch = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    dense = dense_attention(backbone, batch).double().numpy()[:, 0]
    product = np.eye(16)
    for layer in dense:
        product = (0.5 * np.eye(16) + 0.5 * layer.mean(axis=0)) @ product
    maps = rollout_maps(backbone, batch, RolloutRequest(options=PAPER, query=Query.MEAN))[0]
    np.testing.assert_allclose(maps.rollout.ravel(), product.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(maps.last.ravel(), dense[-1].mean(axis=(0, 1)), atol=1e-6)
    assert maps.query is Query.MEAN


@pytest.mark.parametrize("ratio", [1, 1.5, -0.1, float("nan")])
def test_a_ratio_outside_the_definition_is_refused(ratio):
    with pytest.raises(UsageError, match="discard ratio"):
        check_rollout_options(RolloutOptions(discard_ratio=ratio))


@pytest.mark.parametrize("residual", [1, -0.1])
def test_a_residual_outside_the_definition_is_refused(residual):
    with pytest.raises(UsageError, match="residual"):
        check_rollout_options(RolloutOptions(residual=residual))


def test_memory_of_passed_matrices_is_used_again_for_the_same_size_only():
    pool = MatrixPool()
    cpu = torch.device("cpu")
    first = pool.take(5, cpu)
    assert pool.take(5, cpu) is not first
    pool.give(first)
    assert pool.take(5, cpu) is first
    pool.give(first)
    assert pool.take(6, cpu).shape == (6, 6)
    assert pool.take(5, cpu) is not first


def test_pictures_one_after_the_other_are_not_mixed_up():
    """Sizes in turn, with and without a discard, against a model that has seen nothing before."""
    backbone = tiny_vit()
    batches = [torch.rand(2, 3, 16, 24), torch.rand(1, 3, 24, 24), torch.rand(2, 3, 16, 24)]
    for ratio in (0, 0.9, 0):
        request = RolloutRequest(options=RolloutOptions(discard_ratio=ratio))
        for batch in batches:
            ours = rollout_maps(backbone, batch, request)
            fresh = rollout_maps(tiny_vit(), batch, request)
            for one, other in zip(ours, fresh, strict=True):
                np.testing.assert_array_equal(one.rollout, other.rollout)


def test_the_memory_goes_with_the_model():
    backbone = tiny_vit()
    rollout_maps(backbone, torch.rand(1, 3, 16, 24), RolloutRequest())
    pool = weakref.ref(pool_of(backbone))
    assert pool() is not None
    del backbone
    gc.collect()
    assert pool() is None
