"""Statistics of whole attention matrices, block by block (docs/definitions.md)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from attnviz.attention.arrays import TokenLayout
from attnviz.attention.blocks import RowBlock, row_blocks, row_sum, row_sums
from attnviz.attention.capture import AttentionCall
from attnviz.domain import Size


@dataclass(frozen=True)
class StatsOptions:
    """Which statistics to compute; each is another pass over N x N values.

    ``mean``: the mean row of the patch queries, or a weighted one of all. ``distance``: the mean
    attention distance. ``entropy``: of every row. ``received``: the attention that each token
    receives, its column's sum.
    """

    mean: bool = False
    distance: bool = False
    entropy: bool = False
    received: bool = False

    def __bool__(self) -> bool:
        return self.mean or self.distance or self.entropy or self.received


class MatrixStats:
    """Statistics of one layer of one image, accumulated over blocks of its rows, per head.

    ``to_first`` (H, N) float32: attention of every token to token 0.
    """

    def __init__(
        self,
        layout: TokenLayout,
        heads: int,
        options: StatsOptions,
        device: torch.device,
        weights: Tensor | None = None,
    ) -> None:
        """Weights (N,): of each row in ``mean_row``; None: those of the patches, all the same."""
        shape = (heads, layout.tokens)
        self._layout = layout
        self._weights = weights
        self.to_first = torch.zeros(shape, device=device)
        self._sum = torch.zeros(shape, device=device) if options.mean else None
        self._received = torch.zeros(shape, device=device) if options.received else None
        self._entropy = torch.zeros(shape, device=device) if options.entropy else None
        self._distance = DistanceSums(layout, heads, device) if options.distance else None

    def read(self, call: AttentionCall, output: Tensor | None = None) -> None:
        """Accumulate all rows of one image (``call`` with B = 1).

        output (H, N, d): attention times V is written there on the way.

        Raises:
            AttentionError: A row is broken, or the output is not the model's own.
        """
        blocks = row_blocks(
            call,
            output=output,
            logits=self._entropy is not None,
            sum_rows=row_sums if self._distance is None else self._distance.sum_rows,
        )
        for block in blocks:
            self._add(block)

    def _add(self, block: RowBlock) -> None:
        rows, totals = block.rows, block.totals[..., 0]  # H, R
        self.to_first[:, rows] = block.weights[..., 0] / totals
        if self._sum is not None:
            skip = prefix_rows(rows, self._layout.prefix) if self._weights is None else 0
            self._sum += row_sum(block, skip, self._weights)
        if self._received is not None:
            self._received += row_sum(block)
        if self._entropy is not None and block.logits is not None:
            # -sum a ln a = ln(sum e^z) - sum a z: no logarithm of N x N values is needed.
            mean_logit = block.logits.mul_(block.weights).sum(dim=-1) / totals
            self._entropy[:, rows] = (totals.log() - mean_logit).clamp_min_(0.0)

    @property
    def received(self) -> Tensor:
        """Attention that every token receives from all tokens: (H, N) float32, sum N.

        Raises:
            ValueError: The options exclude it.
        """
        if self._received is None:
            raise ValueError("the statistics were made without the attention received")
        return self._received

    @property
    def entropy(self) -> Tensor:
        """Entropy of every row in nats: (H, N) float32.

        Raises:
            ValueError: The options exclude it.
        """
        if self._entropy is None:
            raise ValueError("the statistics were made without entropy")
        return self._entropy

    @property
    def distance(self) -> Tensor:
        """Mean attention distance over the patch queries, in input pixels: (H,) float32.

        Raises:
            ValueError: The options exclude it.
        """
        if self._distance is None:
            raise ValueError("the statistics were made without distance")
        return self._distance.mean()

    @property
    def mean_row(self) -> Tensor:
        """Mean of the patch queries' rows, or the weighted sum of all rows: (H, N) float32.

        Raises:
            ValueError: The options exclude it.
        """
        if self._sum is None:
            raise ValueError("the statistics were made without mean")
        return self._sum / self._layout.patches if self._weights is None else self._sum

    @property
    def to_cls(self) -> Tensor:
        """Attention of every patch to token 0: (H, gh, gw)."""
        return self.to_first[:, self._layout.prefix :].reshape(-1, *self._layout.grid)


class DistanceSums:
    """Attention distance of every patch query, summed up from unnormalised rows."""

    def __init__(self, layout: TokenLayout, heads: int, device: torch.device) -> None:
        self._prefix = layout.prefix
        self._grid = layout.grid
        self._distances = distance_table(layout.grid, layout.step).to(device)
        # Per patch query and head: sum of weight * distance, and sum of weight.
        self._sums = torch.zeros(layout.patches, heads, 2, device=device)

    def sum_rows(self, weights: Tensor, rows: slice) -> Tensor:
        """Add rows (H, R, N) of weights; returns their sums (H, R, 1), which come with it."""
        skip = prefix_rows(rows, self._prefix)
        first, end = rows.start + skip - self._prefix, rows.stop - self._prefix
        totals = weights[..., : self._prefix].sum(dim=-1, keepdim=True)
        if skip:
            totals[:, :skip] += weights[:, :skip, self._prefix :].sum(dim=-1, keepdim=True)
        if first < end:
            self._add(weights[:, skip:, self._prefix :].transpose(0, 1), first, end)
            totals[:, skip:, 0] += self._sums[first:end, :, 1].T
        return totals

    def _add(self, patches: Tensor, first: int, end: int) -> None:
        """Add the patch queries ``first`` to ``end``; patches (R, H, n): their weights.

        Queries of one grid row make one batched product, which reads the weights where they lie.
        """
        width, count = self._grid.width, patches.shape[-1]
        query = first
        while query < end:
            row, column = divmod(query, width)
            stop = min(query - column + width, end)
            start = (self._grid.height - 1 - row) * width
            distances = self._distances[column : column + stop - query, start : start + count]
            torch.bmm(patches[query - first : stop - first], distances, out=self._sums[query:stop])
            query = stop

    def mean(self) -> Tensor:
        """Mean over all patch queries: (H,) float32."""
        sums = self._sums.double()
        return (sums[..., 0] / sums[..., 1]).mean(dim=0).float()


def prefix_rows(rows: slice, prefix: int) -> int:
    """How many of some rows are those of prefix tokens, which come first."""
    start, stop = int(rows.start), int(rows.stop)
    return min(max(0, prefix - start), stop - start)


@lru_cache(maxsize=4)
def distance_table(grid: Size, step: int) -> Tensor:
    """Distances in input pixels between patches by column and offset, each beside a 1.

    (gw, (2 gh - 1) * gw, 2): the query's column; the row offset from -(gh - 1) to gh - 1 and the
    other patch's column. The distances from patch (r, c) to all patches are gh * gw consecutive
    entries of column c, from (gh - 1 - r) * gw on, so no N x N table of square roots is needed. The
    1 makes one product yield both the sum of weight * distance and the sum of weights.
    """
    dy = torch.arange(1 - grid.height, grid.height)
    dx = torch.arange(grid.width)[:, None] - torch.arange(grid.width)
    squares = (dy * dy)[:, None] + (dx * dx)[:, None, :]  # gw, 2 gh - 1, gw
    pixels = squares.float().sqrt_().mul_(step).flatten(1)
    return torch.stack([pixels, torch.ones_like(pixels)], dim=1).transpose(1, 2)
