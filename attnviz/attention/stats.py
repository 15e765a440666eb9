"""Numbers of attention rows: entropy, focus, attention distance (docs/definitions.md)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attnviz.attention.blocks import RowBlock
from attnviz.domain import Size

if TYPE_CHECKING:
    from attnviz.domain import FloatArray


def entropy(rows: FloatArray) -> FloatArray:
    """Entropy in nats of rows (..., N) that sum to 1: (...), with 0 ln 0 = 0 and no epsilon.

    Between 0 (one token has all) and ln N (uniform).
    """
    values = rows.astype(np.float64)
    logs = np.log(values, out=np.zeros_like(values), where=values > 0)
    # Adding 0.0 turns the -0.0 of a one-hot row into 0.0.
    return np.asarray(-(values * logs).sum(axis=-1) + 0.0, dtype=np.float32)


def focus(patches: FloatArray) -> FloatArray:
    """Largest over mean weight of the patch tokens (..., gh, gw): (...), 1 when uniform."""
    flat = patches.reshape(*patches.shape[:-2], -1).astype(np.float64)
    mean = flat.mean(axis=-1)
    ratio = np.divide(flat.max(axis=-1), mean, out=np.ones_like(mean), where=mean > 0)
    return np.asarray(ratio, dtype=np.float32)


def uniform_entropy(tokens: int) -> float:
    """Natural log of N: the largest entropy that a row over ``tokens`` tokens can have, in nats."""
    return math.log(tokens)


class MatrixStats:
    """What the blocks of one layer and image add up to, head by head.

    After all blocks: ``distance`` (H,) in input pixels, ``mean_row`` (H, N): the mean over the
    patch queries, ``to_cls`` (H, N - P): patch to CLS attention, ``entropy`` (H, N) of every row.
    """

    def __init__(self, heads: int, prefix: int, grid: Size, patch: int, like: Tensor) -> None:
        tokens = prefix + grid.height * grid.width
        device = like.device
        self.prefix = prefix
        self.grid = grid
        self.patch = patch
        self.entropy = torch.zeros(heads, tokens, device=device)
        self.to_first = torch.zeros(heads, tokens, device=device)
        self._row_sum = torch.zeros(heads, tokens, device=device)
        self._distance_sum = torch.zeros(heads, device=device, dtype=torch.float64)
        self._rows: torch.Tensor | None = None
        self._rows_of: slice | None = None

    def add(self, block: RowBlock) -> None:
        """Take a block into the sums."""
        attention, rows = block.attention, block.rows  # h, R, N
        highest, place = attention.max(dim=-1, keepdim=True)
        # -sum a ln a = ln(sum e^z) - sum a z, and ln(sum e^z) = z_max - ln a_max: no logarithm of
        # N*N values. Exact zeros contribute nothing.
        logits = block.logits
        top = logits.gather(-1, place)
        finite = torch.where(attention > 0, logits, 0.0) if torch.isinf(logits).any() else logits
        spread = torch.linalg.vecdot(attention, finite - top)
        self.entropy[block.heads, rows] = -highest[..., 0].log() - spread
        self.to_first[block.heads, rows] = attention[..., 0]
        skip = max(0, self.prefix - rows.start)
        if rows.start + skip >= rows.stop:
            return
        patches = attention[:, skip:]
        self._row_sum[block.heads] += patches.sum(dim=1)
        if self._rows_of != rows:
            self._rows_of, self._rows = rows, self._pixel_distances(rows.start + skip, rows.stop)
        assert self._rows is not None
        weights = patches[..., self.prefix :]
        reach = torch.linalg.vecdot(weights, self._rows) / weights.sum(dim=-1)  # h, R
        self._distance_sum[block.heads] += reach.sum(dim=-1)

    def _pixel_distances(self, start: int, stop: int) -> Tensor:
        """|pos_i - pos_j| in input pixels, of patch tokens start..stop to all patches: (R, n)."""
        device = self.entropy.device
        cell = torch.arange(start - self.prefix, stop - self.prefix, device=device)
        dy = (cell // self.grid.width)[:, None] - torch.arange(self.grid.height, device=device)
        dx = (cell % self.grid.width)[:, None] - torch.arange(self.grid.width, device=device)
        squares = (dy * dy)[:, :, None] + (dx * dx)[:, None, :]  # R, gh, gw
        return squares.float().sqrt_().mul_(self.patch).flatten(1)

    @property
    def distance(self) -> Tensor:
        """Mean attention distance (H,) over all patch queries, input pixels, float32."""
        return (self._distance_sum / (self.grid.height * self.grid.width)).float()

    @property
    def mean_row(self) -> Tensor:
        """Mean over the patch queries of their rows: (H, N)."""
        return self._row_sum / (self.grid.height * self.grid.width)

    @property
    def to_cls(self) -> Tensor:
        """Attention of every patch to token 0: (H, gh, gw)."""
        return self.to_first[:, self.prefix :].reshape(-1, *self.grid)
