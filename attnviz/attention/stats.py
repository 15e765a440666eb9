"""Numbers of attention rows: entropy, focus, attention distance (docs/definitions.md)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnviz.attention.blocks import RowBlock, row_sum
from attnviz.domain import Size

if TYPE_CHECKING:
    pass


class MatrixStats:
    """What the blocks of one layer and image add up to, head by head.

    ``mean_row`` (H, N): the mean over the patch queries. ``distance`` (H,): the mean attention
    distance over the patch queries, input pixels. ``entropy`` (H, N): of every row, nats.
    ``to_first`` (H, N): the attention of every token to token 0. The first three are only filled
    when asked for, since each is another pass over N x N values.
    """

    def __init__(
        self,
        heads: int,
        prefix: int,
        grid: Size,
        patch: int,
        device: torch.device,
        *,
        mean: bool = True,
        distance: bool = True,
        entropy: bool = True,
    ) -> None:
        tokens = prefix + grid.height * grid.width
        self.prefix = prefix
        self.grid = grid
        self.entropy = torch.zeros(heads, tokens, device=device) if entropy else None
        self.to_first = torch.zeros(heads, tokens, device=device)
        self._sum = torch.zeros(heads, tokens, device=device) if mean else None
        self._measures = measures(grid, patch).to(device) if distance else None
        # Of every cell and head: weights times distances, and weights, summed.
        self._reach = torch.zeros(grid.height * grid.width, heads, 2, device=device)

    def add(self, block: RowBlock) -> None:
        """Take the rows of a block into the numbers. Each row comes once."""
        rows, totals = block.rows, block.totals[..., 0]  # H, R
        skip = min(max(0, self.prefix - rows.start), rows.stop - rows.start)
        self.to_first[:, rows] = block.weights[..., 0] / totals
        if self._sum is not None:
            self._sum += row_sum(block, skip)
        if self.entropy is not None and block.logits is not None:
            # -sum a ln a = ln(sum e^z) - sum a z: no logarithm of N x N values is taken.
            mean_logit = block.logits.mul_(block.weights).sum(dim=-1) / totals
            self.entropy[:, rows] = (totals.log() - mean_logit).clamp_min_(0.0)
        if self._measures is not None and skip < rows.stop - rows.start:
            patches = block.weights[:, skip:, self.prefix :]
            self._measure(patches, rows.start + skip - self.prefix, self._measures)

    def _measure(self, patches: Tensor, first: int, measures: Tensor) -> None:
        """Sum up how far some cells from ``first`` on attend; patches: (H, R, n), their weights.

        Cells of one grid row are one batch, so that weights and distances are read once, where
        they lie.
        """
        rows = patches.transpose(0, 1)  # R, H, n
        width, cells = self.grid.width, patches.shape[-1]
        cell, end = first, first + rows.shape[0]
        while cell < end:
            row, column = divmod(cell, width)
            until = min(cell - column + width, end)
            from_row = (self.grid.height - 1 - row) * width
            own = measures[column : column + until - cell, from_row : from_row + cells]
            torch.bmm(rows[cell - first : until - first], own, out=self._reach[cell:until])
            cell = until

    @property
    def distance(self) -> Tensor:
        """Mean attention distance (H,) over all patch queries, input pixels, float32.

        Raises:
            ValueError: It was not asked for.
        """
        if self._measures is None:
            raise ValueError("the attention distance was not asked for")
        reach = self._reach.double()
        return (reach[..., 0] / reach[..., 1]).mean(dim=0).float()

    @property
    def mean_row(self) -> Tensor:
        """Mean over the patch queries of their rows: (H, N).

        Raises:
            ValueError: It was not asked for.
        """
        if self._sum is None:
            raise ValueError("the mean over the patch queries was not asked for")
        return self._sum / (self.grid.height * self.grid.width)

    @property
    def to_cls(self) -> Tensor:
        """Attention of every patch to token 0: (H, gh, gw)."""
        return self.to_first[:, self.prefix :].reshape(-1, *self.grid)


@lru_cache(maxsize=4)
def measures(grid: Size, patch: int) -> Tensor:
    """Distance in input pixels from a patch in column c to one some rows and columns away, and 1.

    (gw, (2 gh - 1) * gw, 2): column c, then y rows away from -(gh - 1) to gh - 1 and the other's
    column. The distances from cell (r, c) to all cells are gh * gw neighbours in row c, from
    (gh - 1 - r) * gw on, so no root is taken of N x N values. The 1 lets one product sum up both
    the weights times distances and the weights.
    """
    dy = torch.arange(1 - grid.height, grid.height)
    dx = torch.arange(grid.width)[:, None] - torch.arange(grid.width)
    squares = (dy * dy)[:, None] + (dx * dx)[:, None, :]  # gw, 2 gh - 1, gw
    pixels = squares.float().sqrt_().mul_(patch).flatten(1)
    return torch.stack([pixels, torch.ones_like(pixels)], dim=1).transpose(1, 2)
