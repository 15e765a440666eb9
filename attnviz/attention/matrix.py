"""Whole attention matrices, before and after softmax, as means over blocks of tokens.

A matrix of 3,601 tokens takes 52 MB a head, and no page has 3,601 pixels for it; so its rows are
computed once and only the means over blocks are kept, unless the whole matrix is requested.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attnviz.attention.arrays import TokenLayout, as_array, layout_of
from attnviz.attention.capture import AttentionCall, AttentionModel, capture
from attnviz.attention.choose import choose_heads, choose_layer
from attnviz.attention.matrix_rows import MatrixRows, matrix_rows
from attnviz.attention.memory import MAX_CELLS, check_whole
from attnviz.domain import MatrixMaps, ModelInfo, Size
from attnviz.domain.kinds import MatrixRequest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import FloatArray, IntArray

DRAWN_HEADS = 4
"""Heads whose matrices are drawn by default, at most."""


def block_edges(prefix: int, grid: Size, most: int = MAX_CELLS) -> IntArray:
    """Where blocks of tokens begin, and where the last one ends: (n + 1,), n at most prefix + most.

    Each prefix token is a block. Patches form equal runs within a grid row, the last of a row
    shorter, or equal numbers of whole rows where the grid has more than ``most`` rows.
    """
    if grid.height > most:
        step = -(-grid.height // most) * grid.width
        starts = np.arange(0, grid.height * grid.width, step)
    else:
        runs = min(grid.width, most // grid.height)
        run = math.ceil(grid.width / runs)
        row = np.arange(0, grid.width, run)
        starts = (np.arange(grid.height)[:, None] * grid.width + row).ravel()
    tokens = prefix + grid.height * grid.width
    return np.concatenate([np.arange(prefix), prefix + starts, [tokens]]).astype(np.int64)


class BlockMeans:
    """Means of matrices (H, N, N) over blocks of tokens, accumulated row by row."""

    def __init__(self, heads: int, edges: IntArray) -> None:
        self._edges = edges
        sizes = np.diff(edges)
        self._cell = np.repeat(np.arange(sizes.size), sizes)  # N
        self._area = np.outer(sizes, sizes)
        self._sums = np.zeros((heads, sizes.size, sizes.size), np.float32)

    def add(self, index: int, rows: slice, values: NDArray[np.float32]) -> None:
        """Add rows (R, N) of matrix ``index`` to its sums. Each row is added once."""
        columns = np.add.reduceat(values, self._edges[:-1], axis=1, dtype=np.float64)  # R, n
        cells = self._cell[rows]
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        self._sums[index, cells[starts]] += np.add.reduceat(columns, starts, axis=0)

    @property
    def means(self) -> FloatArray:
        """(H, n, n)."""
        return np.asarray(self._sums / self._area, np.float32)


class _LayerSums:
    """One layer of one image, accumulated over its blocks, for the chosen heads (h)."""

    def __init__(
        self, layout: TokenLayout, heads: tuple[int, ...], device: torch.device, *, whole: bool
    ) -> None:
        tokens, count = layout.tokens, len(heads)
        self.heads = heads
        self.edges = block_edges(layout.prefix, layout.grid)
        self.logits = BlockMeans(count, self.edges)
        self.attention = BlockMeans(count, self.edges)
        self.entropy = torch.zeros(count, tokens, device=device)
        self.to_first = torch.zeros(count, tokens, device=device)
        self.received = torch.zeros(count, tokens, device=device)
        self.range = np.tile(np.array([np.inf, -np.inf], np.float32), (count, 1))
        self.whole: tuple[FloatArray, FloatArray] | None = None
        if whole:
            shape = (count, tokens, tokens)
            self.whole = (np.empty(shape, np.float32), np.empty(shape, np.float32))

    def add(self, block: MatrixRows) -> None:
        """Accumulate a block."""
        for index, head in enumerate(self.heads):
            weights = block.attention[head]
            self.entropy[index, block.rows] = -torch.xlogy(weights, weights).sum(dim=-1) + 0.0
            self.to_first[index, block.rows] = weights[:, 0]
            self.received[index] += weights.sum(dim=0)
            logits, attention = as_array(block.logits[head]), as_array(weights)
            self.logits.add(index, block.rows, logits)
            self.attention.add(index, block.rows, attention)
            low, high = self.range[index]
            self.range[index] = min(low, logits.min()), max(high, logits.max())
            if self.whole is not None:
                self.whole[0][index, block.rows] = logits
                self.whole[1][index, block.rows] = attention


def matrix_maps(model: AttentionModel, batch: Tensor, request: MatrixRequest) -> list[MatrixMaps]:
    """The attention matrices of a layer, for each image of a (B, 3, h, w) batch.

    Raises:
        UsageError: Layer or head out of range.
        MemoryNeededError: The whole matrices are requested and too large to hold.
    """
    info = model.info
    layer = choose_layer(info, request.layer)
    heads = choose_heads(info, request.heads)
    layout = layout_of(model, batch)
    if request.whole:
        check_whole(info, len(heads), layout.tokens)
    maps: list[MatrixMaps] = []

    def handle(call: AttentionCall) -> None:
        if call.layer != layer:
            return
        for image in range(batch.shape[0]):
            sums = _LayerSums(layout, heads, batch.device, whole=request.whole)
            for block in matrix_rows(call.of_image(image)):
                sums.add(block)
            maps.append(_maps(sums, info, layout, layer, draw_all=request.heads is not None))

    capture(model, batch, layer, handle)
    return maps


def _maps(
    sums: _LayerSums, info: ModelInfo, layout: TokenLayout, layer: int, *, draw_all: bool
) -> MatrixMaps:
    heads = sums.heads
    entropy, to_first = as_array(sums.entropy), as_array(sums.to_first)
    drawn = list(range(len(heads)) if draw_all else spread_heads(entropy.mean(axis=1)))
    logits, attention = sums.logits.means, sums.attention.means  # h, n, n
    return MatrixMaps(
        cell_logits=logits[drawn],
        cell_attention=attention[drawn],
        mean_logits=logits.mean(axis=0),
        mean_attention=attention.mean(axis=0),
        edges=sums.edges,
        token_entropy=entropy,
        to_cls=layout.to_grid(to_first) if info.has_cls else None,
        logit_range=sums.range,
        grid=layout.grid,
        layer=layer,
        heads=heads,
        drawn=tuple(heads[index] for index in drawn),
        logits=sums.whole[0] if sums.whole else None,
        attention=sums.whole[1] if sums.whole else None,
        received=as_array(sums.received),
    )


def spread_heads(entropy: FloatArray, most: int = DRAWN_HEADS) -> tuple[int, ...]:
    """Indices of at most ``most`` heads, spaced evenly by rank of their entropy (H,), in order.

    A few matrices then span the kinds of heads of a layer; the mean is over all of them.
    """
    order = np.argsort(entropy, kind="stable")
    ranks = np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int)
    return tuple(sorted(int(order[rank]) for rank in ranks))
