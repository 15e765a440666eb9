"""Whole attention matrices, before and after softmax, as means over blocks of tokens.

A matrix of 3,601 tokens takes 52 MB a head, and no page has 3,601 pixels for it; so its rows pass
by once and only the means over blocks are kept, unless the whole is asked for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attnviz.attention.arrays import as_array, grid_of
from attnviz.attention.capture import AttentionCall, AttentionModel, capture
from attnviz.attention.choose import choose_heads, choose_layer
from attnviz.attention.matrix_rows import MatrixRows, matrix_rows
from attnviz.attention.memory import CELLS_MOST, check_whole
from attnviz.domain import MatrixMaps, ModelInfo, Size
from attnviz.domain.kinds import MatrixRequest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import FloatArray, IntArray

DRAWN_MOST = 4
"""Heads whose matrices are drawn when none are named."""


def block_edges(prefix: int, grid: Size, most: int = CELLS_MOST) -> IntArray:
    """Where blocks of tokens begin, and where the last ends: (n + 1,), n at most prefix + most.

    Prefix tokens stand alone. Patches come in equal runs of one row of the grid, the last of a row
    shorter, or in equal numbers of whole rows where the grid has more than ``most``.
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
    """Means of matrices (H, N, N) over blocks of tokens, from their rows as they pass by."""

    def __init__(self, heads: int, edges: IntArray) -> None:
        self._edges = edges
        sizes = np.diff(edges)
        self._cell = np.repeat(np.arange(sizes.size), sizes)  # N
        self._area = np.outer(sizes, sizes)
        self._sums = np.zeros((heads, sizes.size, sizes.size), np.float32)

    def add(self, place: int, rows: slice, values: NDArray[np.float32]) -> None:
        """Take rows (R, N) of one matrix into its sums. Each row comes once."""
        columns = np.add.reduceat(values, self._edges[:-1], axis=1, dtype=np.float64)  # R, n
        cells = self._cell[rows]
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        self._sums[place, cells[starts]] += np.add.reduceat(columns, starts, axis=0)

    @property
    def means(self) -> FloatArray:
        """(H, n, n)."""
        return np.asarray(self._sums / self._area, np.float32)


class _Layer:
    """What the blocks of one image's layer add up to, for the chosen heads."""

    def __init__(
        self,
        info: ModelInfo,
        grid: Size,
        heads: tuple[int, ...],
        device: torch.device,
        *,
        whole: bool,
    ) -> None:
        tokens, count = info.prefix + grid.height * grid.width, len(heads)
        self.places = {head: place for place, head in enumerate(heads)}
        self.edges = block_edges(info.prefix, grid)
        self.logits = BlockMeans(count, self.edges)
        self.attention = BlockMeans(count, self.edges)
        self.entropy = torch.zeros(count, tokens, device=device)
        self.to_first = torch.zeros(count, tokens, device=device)
        self.range = np.tile(np.array([np.inf, -np.inf], np.float32), (count, 1))
        self.whole: tuple[FloatArray, FloatArray] | None = None
        if whole:
            shape = (count, tokens, tokens)
            self.whole = (np.empty(shape, np.float32), np.empty(shape, np.float32))

    def add(self, block: MatrixRows) -> None:
        """Take a block in."""
        for head, place in self.places.items():
            weights = block.attention[head]
            self.entropy[place, block.rows] = -torch.xlogy(weights, weights).sum(dim=-1) + 0.0
            self.to_first[place, block.rows] = weights[:, 0]
            logits, attention = as_array(block.logits[head]), as_array(weights)
            self.logits.add(place, block.rows, logits)
            self.attention.add(place, block.rows, attention)
            low, high = self.range[place]
            self.range[place] = min(low, logits.min()), max(high, logits.max())
            if self.whole is not None:
                self.whole[0][place, block.rows] = logits
                self.whole[1][place, block.rows] = attention


def matrix_maps(model: AttentionModel, batch: Tensor, request: MatrixRequest) -> list[MatrixMaps]:
    """The attention matrices of a layer, for each image of a (B, 3, h, w) batch.

    Raises:
        UsageError: Layer or head out of range.
        MemoryNeededError: The whole matrices are asked for and are too many to hold.
    """
    info = model.info
    layer = choose_layer(info, request.layer)
    heads = choose_heads(info, request.heads)
    grid = grid_of(model, batch)
    if request.whole:
        check_whole(info, len(heads), info.prefix + grid.height * grid.width)
    made: list[MatrixMaps] = []

    def take(call: AttentionCall) -> None:
        if call.layer != layer:
            return
        for image in range(batch.shape[0]):
            found = _Layer(info, grid, heads, batch.device, whole=request.whole)
            for block in matrix_rows(call.of_image(image)):
                found.add(block)
            made.append(_maps_of(found, info, grid, layer, all_drawn=request.heads is not None))

    capture(model, batch, layer, take)
    return made


def _maps_of(
    found: _Layer, info: ModelInfo, grid: Size, layer: int, *, all_drawn: bool
) -> MatrixMaps:
    heads = tuple(found.places)
    entropy, to_cls = as_array(found.entropy), as_array(found.to_first[:, info.prefix :])
    shown = range(len(heads)) if all_drawn else spread_heads(entropy.mean(axis=1))
    logits, attention = found.logits.means, found.attention.means  # H, n, n
    return MatrixMaps(
        cell_logits=logits[list(shown)],
        cell_attention=attention[list(shown)],
        mean_logits=logits.mean(axis=0),
        mean_attention=attention.mean(axis=0),
        edges=found.edges,
        token_entropy=entropy,
        to_cls=to_cls.reshape(-1, *grid) if info.has_cls else None,
        logit_range=found.range,
        grid=grid,
        layer=layer,
        heads=heads,
        drawn=tuple(heads[place] for place in shown),
        logits=found.whole[0] if found.whole else None,
        attention=found.whole[1] if found.whole else None,
    )


def spread_heads(entropy: FloatArray, most: int = DRAWN_MOST) -> tuple[int, ...]:
    """Places of at most ``most`` heads, spaced evenly by rank of their entropy (H,), in order.

    So a few matrices show what the heads of a layer have to offer; the mean takes all of them.
    """
    order = np.argsort(entropy, kind="stable")
    places = np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(int)
    return tuple(sorted(int(order[place]) for place in places))
