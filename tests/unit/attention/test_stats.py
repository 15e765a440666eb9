"""Entropy, focus, attention distance and selection against numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from attnviz.attention import select
from attnviz.attention.arrays import TokenLayout
from attnviz.attention.select import kth_smallest
from attnviz.attention.stats import MatrixStats, StatsOptions
from attnviz.domain import Size
from attnviz.domain.row_statistics import entropy, focus, uniform_entropy
from tests.helpers.planted import planted_call, random_stochastic

EVERYTHING = StatsOptions(mean=True, distance=True, entropy=True)


def stats_of(matrices, prefix, grid, patch=8):
    call = planted_call(matrices)
    layout, heads = TokenLayout(prefix, grid, patch), call.query.shape[1]
    stats = MatrixStats(layout, heads, EVERYTHING, call.query.device)
    stats.read(call)
    return stats


@pytest.mark.parametrize(
    ("tokens", "nats"), [(785, 6.665684), (784, 6.664409), (257, 5.549076), (1370, 7.222566)]
)
def test_uniform_entropy(tokens, nats):
    row = np.full(tokens, 1 / tokens, dtype=np.float32)
    assert entropy(row) == pytest.approx(nats, abs=1e-5)
    assert uniform_entropy(tokens) == pytest.approx(nats, abs=1e-6)


def test_one_hot_has_exactly_no_entropy():
    row = np.zeros(785, dtype=np.float32)
    row[3] = 1
    assert entropy(row) == 0
    assert math.copysign(1, float(entropy(row))) == 1


def test_zeros_contribute_nothing():
    assert entropy(np.array([0.5, 0, 0.5, 0], dtype=np.float32)) == pytest.approx(math.log(2))


def test_focus():
    maps = np.array([[[0.1, 0.1], [0.1, 0.1]], [[0.4, 0], [0, 0]], [[0, 0], [0, 0]]])
    np.testing.assert_allclose(focus(maps.astype(np.float32)), [1, 4, 1], rtol=1e-6)


def test_attention_distance_by_hand():
    """CLS and a 1 x 3 grid, patch 8. Row by row, over patches only:

    patch 0: (0.2*0 + 0.2*8 + 0.4*16) / 0.8 = 10;  patch 1: (0.3*8 + 0.3*8) / 0.6 = 8;
    patch 2 looks at itself: 0.  Mean: 6.
    """
    matrix = [[0.25] * 4, [0.2, 0.2, 0.2, 0.4], [0.4, 0.3, 0.0, 0.3], [0.5, 0, 0, 0.5]]
    stats = stats_of(matrix, 1, Size(1, 3))
    assert stats.distance[0] == pytest.approx(6, abs=1e-5)
    np.testing.assert_allclose(stats.to_cls[0], [[0.2, 0.4, 0.5]], atol=1e-6)
    np.testing.assert_allclose(stats.mean_row[0], np.mean(matrix[1:], axis=0), atol=1e-6)


@pytest.mark.parametrize("rows", [1, 10, 256])
def test_whole_matrix_numbers_agree_with_the_dense_matrix_whatever_the_blocks(rows, monkeypatch):
    monkeypatch.setattr("attnviz.attention.blocks.CPU_BLOCK_ROWS", rows)
    dense = random_stochastic(np.random.default_rng(0), 2, 5 + 6 * 7, 5 + 6 * 7)
    stats = stats_of(dense, 5, Size(6, 7), patch=14)
    rows, columns = np.divmod(np.arange(42), 7)
    pixels = 14 * np.hypot(rows[:, None] - rows, columns[:, None] - columns)
    patches = dense[:, 5:, 5:]
    distance = ((patches * pixels).sum(-1) / patches.sum(-1)).mean(-1)
    np.testing.assert_allclose(stats.distance, distance, rtol=1e-5)
    np.testing.assert_allclose(stats.entropy, entropy(dense), atol=1e-5)
    np.testing.assert_allclose(stats.mean_row, dense[:, 5:].mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(stats.to_cls.flatten(1), dense[:, 5:, 0], atol=1e-6)


@pytest.mark.parametrize("kind", ["random", "ties", "sorted", "constant", "rows"])
@pytest.mark.parametrize("share", [1e-9, 0.1, 0.5, 0.9, 0.99999, 1])
def test_kth_smallest_is_exact(kind, share, monkeypatch):
    monkeypatch.setattr(select, "SMALL", 100)
    monkeypatch.setattr(select, "SAMPLE", 256)
    rng = np.random.default_rng(0)
    values = {
        "random": rng.random((300, 300)),
        "ties": rng.integers(0, 3, (300, 300)),
        "sorted": np.arange(90_000).reshape(300, 300),
        "constant": np.ones((300, 300)),
        "rows": np.repeat(rng.random((300, 1)), 300, axis=1),
    }[kind].astype(np.float32)
    k = max(1, int(share * values.size))
    assert kth_smallest(torch.from_numpy(values), k) == np.sort(values.ravel())[k - 1]


@pytest.mark.parametrize("k", [0, 10])
def test_kth_smallest_refuses_a_k_out_of_range(k):
    with pytest.raises(ValueError, match="expected 1 to 9"):
        kth_smallest(torch.zeros(3, 3), k)


@pytest.mark.parametrize("name", ["mean_row", "distance", "entropy"])
def test_a_statistic_that_the_options_exclude_is_refused(name):
    layout = TokenLayout(1, Size(3, 3), 8)
    stats = MatrixStats(layout, 2, StatsOptions(), torch.device("cpu"))
    with pytest.raises(ValueError, match="statistics were made without"):
        getattr(stats, name)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_kth_smallest_is_the_same_with_any_number_of_threads(threads, monkeypatch):
    monkeypatch.setattr(select, "SMALL", 100)
    monkeypatch.setattr(select, "CHUNK", 1000)
    monkeypatch.setattr(select, "THREAD_VALUES", 10_000)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    values = np.random.default_rng(0).random((190, 191)).astype(np.float32)
    assert kth_smallest(torch.from_numpy(values), 30_000) == np.sort(values.ravel())[29_999]
