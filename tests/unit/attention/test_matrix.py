"""Whole matrices against timm's own unfused attention, and their drawn cells as exact means."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.attention import memory
from attnviz.attention.capture import AttentionCall
from attnviz.attention.matrix import BlockMeans, block_edges, matrix_maps, spread_heads
from attnviz.domain import Size
from attnviz.domain.kinds import MatrixRequest
from attnviz.errors import MemoryNeededError, UsageError
from tests.helpers.planted import dense_attention, plain_qkv, planted_call, tiny_vit

CPU = torch.device("cpu")


def batch_of(height=24, width=40, images=1, seed=1):
    return torch.randn(images, 3, height, width, generator=torch.Generator().manual_seed(seed))


def plain_logits(backbone, batch, layer):
    """q k^T / sqrt(d), (B, H, N, N) float64."""
    query, key, _ = plain_qkv(backbone, batch, layer)
    return query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])


@pytest.mark.parametrize(("registers", "cls"), [(0, True), (4, True), (2, False)])
def test_every_value_is_that_of_the_dense_matrix(registers, cls):
    backbone = tiny_vit(registers=registers, cls=cls)
    batch = batch_of(images=2)
    dense = dense_attention(backbone, batch)[1].numpy()
    logits = plain_logits(backbone, batch, 1)
    for image, maps in enumerate(matrix_maps(backbone, batch, MatrixRequest(1, whole=True))):
        assert (maps.prefix, maps.grid, maps.tokens) == (registers + cls, (3, 5), 15 + maps.prefix)
        assert maps.attention == pytest.approx(dense[image], abs=1e-6)
        assert maps.logits == pytest.approx(logits[image], abs=1e-5)
        # A grid this small is drawn token by token.
        assert (maps.cell_attention == maps.attention).all()
        assert maps.cell_logits == pytest.approx(maps.logits)
        assert maps.mean_attention == pytest.approx(dense[image].mean(axis=0), abs=1e-6)
        assert maps.mean_logits == pytest.approx(logits[image].mean(axis=0), abs=1e-5)
        rows = dense[image].astype(np.float64)
        assert maps.token_entropy == pytest.approx(-(rows * np.log(rows)).sum(axis=2), abs=1e-5)
        assert maps.logit_range[:, 0] == pytest.approx(logits[image].min(axis=(1, 2)), abs=1e-5)
        assert maps.logit_range[:, 1] == pytest.approx(logits[image].max(axis=(1, 2)), abs=1e-5)
        if cls:
            to_cls = dense[image][:, maps.prefix :, 0].reshape(2, 3, 5)
            assert maps.to_cls == pytest.approx(to_cls, abs=1e-6)
        else:
            assert maps.to_cls is None


def test_a_two_by_two_matrix_by_hand(monkeypatch):
    """q = (1, 0), (0, 1), k = (0, 0), (ln 3, 0), scale 1: logits 0, ln 3 / 0, 0."""
    query = torch.eye(2)[None, None]
    key = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]])[None, None]
    call = AttentionCall(0, query, key, query, None, 1.0)
    maps = maps_of_call(call, monkeypatch, Size(1, 1))
    assert maps.logits[0] == pytest.approx(np.array([[0, math.log(3)], [0, 0]]))
    assert maps.attention[0] == pytest.approx(np.array([[0.25, 0.75], [0.5, 0.5]]))
    first = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert maps.token_entropy[0] == pytest.approx([first, math.log(2)])
    assert maps.to_cls[0] == pytest.approx(np.array([[0.5]]))


def maps_of_call(call, monkeypatch, grid, **request):
    """Maps of a planted call, through everything but the model."""
    backbone = tiny_vit(depth=1, heads=call.query.shape[1])
    monkeypatch.setattr(
        "attnviz.attention.matrix.capture", lambda _m, _b, _l, handler: handler(call)
    )
    batch = torch.zeros(1, 3, 8 * grid.height, 8 * grid.width)
    return matrix_maps(backbone, batch, MatrixRequest(0, whole=True, **request))[0]


def test_a_masked_logit_is_minus_infinity_and_its_weight_zero(monkeypatch):
    call = planted_call(np.full((5, 5), 0.2))
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2, 4] = False
    maps = maps_of_call(replace(call, mask=mask), monkeypatch, Size(2, 2))
    assert maps.logits[0, 2, 4] == -math.inf
    assert maps.attention[0, 2] == pytest.approx([0.25, 0.25, 0.25, 0.25, 0])
    assert maps.token_entropy[0, 2] == pytest.approx(math.log(4))


def test_drawn_cells_are_exact_means_of_blocks_and_keep_the_sum(monkeypatch):
    """Runs of 3 patches of rows of 5: blocks of 3 and 2, and CLS alone. Nothing is dropped."""
    monkeypatch.setattr(
        "attnviz.attention.matrix.block_edges", lambda prefix, grid: block_edges(prefix, grid, 6)
    )
    backbone = tiny_vit()
    batch = batch_of()
    (maps,) = matrix_maps(backbone, batch, MatrixRequest(1, whole=True))
    assert maps.edges.tolist() == [0, 1, 4, 6, 9, 11, 14, 16]
    sizes = np.diff(maps.edges)
    for cells, whole in ((maps.cell_attention, maps.attention), (maps.cell_logits, maps.logits)):
        for i, (top, bottom) in enumerate(itertools.pairwise(maps.edges)):
            for j, (left, right) in enumerate(itertools.pairwise(maps.edges)):
                block = whole[:, top:bottom, left:right].astype(np.float64)
                assert cells[:, i, j] == pytest.approx(block.mean(axis=(1, 2)), rel=1e-6)
        total = (cells.astype(np.float64) * np.outer(sizes, sizes)).sum(axis=(1, 2))
        assert total == pytest.approx(whole.astype(np.float64).sum(axis=(1, 2)), rel=1e-6)
    assert (maps.cell_attention.astype(np.float64) * sizes).sum(axis=2) == pytest.approx(1)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 6), st.integers(1, 90), st.integers(1, 90), st.integers(1, 70))
def test_blocks_cover_all_tokens_once_and_never_join_rows(prefix, height, width, most):
    edges = block_edges(prefix, Size(height, width), most)
    sizes = np.diff(edges)
    assert edges[0] == 0
    assert edges[-1] == prefix + height * width
    assert (sizes > 0).all()
    assert (sizes[:prefix] == 1).all()
    assert prefix < len(sizes) <= prefix + most
    starts = edges[prefix:-1] - prefix
    if height > most:
        assert (starts % width == 0).all()  # whole rows
    else:
        ends = edges[prefix + 1 :] - prefix - 1
        assert (starts // width == ends // width).all()
    if height * width <= most:
        assert (sizes == 1).all()


@pytest.mark.parametrize(
    ("grid", "cells"),
    [(Size(28, 28), 784), (Size(37, 37), 37 * 19), (Size(60, 60), 900), (Size(1, 1), 1)],
)
def test_how_many_cells_the_usual_sizes_have(grid, cells):
    assert len(block_edges(1, grid)) - 1 == 1 + cells


def test_means_do_not_depend_on_how_rows_come_in():
    values = np.random.default_rng(0).standard_normal((11, 11)).astype(np.float32)
    edges = np.array([0, 1, 4, 6, 11])
    means = []
    for cuts in ((0, 11), (0, 2, 3, 5, 11), tuple(range(12))):
        blocks = BlockMeans(1, edges)
        for start, stop in itertools.pairwise(cuts):
            blocks.add(0, slice(start, stop), values[start:stop])
        means.append(blocks.means[0])
    assert means[1] == pytest.approx(means[0], rel=1e-6)
    assert means[2] == pytest.approx(means[0], rel=1e-6)
    assert means[0][1, 3] == pytest.approx(values[1:4, 6:11].mean(dtype=np.float64), rel=1e-6)


def test_heads_are_those_named_or_spread_from_low_to_high_entropy():
    assert spread_heads(np.array([3.0, 1.0, 2.0], np.float32)) == (0, 1, 2)
    entropy = np.array([5, 1, 9, 3, 7, 8, 2], np.float32)
    # By rank: 1, 6, 3, 0, 4, 5, 2; of the places 0, 2, 4, 6 the heads 1, 3, 4 and 2.
    assert spread_heads(entropy) == (1, 2, 3, 4)
    backbone = tiny_vit(heads=6)
    (maps,) = matrix_maps(backbone, batch_of(), MatrixRequest())
    assert maps.heads == (0, 1, 2, 3, 4, 5)
    assert len(maps.drawn) == 4
    order = maps.token_entropy.mean(axis=1).argsort()
    assert {int(order[0]), int(order[-1])} <= set(maps.drawn)
    (named,) = matrix_maps(backbone, batch_of(), MatrixRequest(heads=(5, 0, 1, 2, 3), whole=True))
    assert named.drawn == named.heads == (5, 0, 1, 2, 3)
    assert named.cell_attention[0] == pytest.approx(named.attention[0])
    assert maps.token_entropy[5] == pytest.approx(named.token_entropy[0])


def test_only_what_was_asked_is_held():
    (maps,) = matrix_maps(tiny_vit(), batch_of(), MatrixRequest())
    assert maps.attention is None
    assert maps.logits is None


def test_whole_matrices_beyond_the_limit_are_refused_with_what_would_fit(monkeypatch):
    monkeypatch.setattr(memory, "WHOLE_LIMIT_BYTES", 2 * 2 * 4 * 10 * 10)
    with pytest.raises(MemoryNeededError, match="2 heads and 16 tokens") as caught:
        matrix_maps(tiny_vit(), batch_of(), MatrixRequest(whole=True))
    # 10 tokens fit: CLS and 3 x 3 patches of 8.
    assert "--size of at most 24" in caught.value.hint
    matrix_maps(tiny_vit(), batch_of(24, 24), MatrixRequest(whole=True))
    matrix_maps(tiny_vit(), batch_of(), MatrixRequest())


def test_memory_grows_with_what_is_held():
    info = replace(tiny_vit().info, heads=12, width=768)
    drawn = memory.needed_bytes(info, 3601, MatrixRequest(), CPU)
    held = memory.needed_bytes(info, 3601, MatrixRequest(whole=True), CPU)
    assert held - drawn == 2 * 12 * 4 * 3601**2
    one = memory.needed_bytes(info, 3601, MatrixRequest(heads=(3,), whole=True), CPU)
    assert one < held / 4


def test_layers_and_heads_that_do_not_exist():
    for request in (MatrixRequest(layer=3), MatrixRequest(heads=(2,))):
        with pytest.raises(UsageError, match="does not exist"):
            matrix_maps(tiny_vit(), batch_of(), request)
