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
        self.patch = patch
        self.entropy = torch.zeros(heads, tokens, device=device) if entropy else None
        self.to_first = torch.zeros(heads, tokens, device=device)
        self._with_mean = mean
        self._with_distance = distance
        self._reach = torch.zeros(heads, device=device, dtype=torch.float64)
        self._row_sum = torch.zeros(heads, tokens, device=device)
        self._pixels = torch.empty(0)
        self._pixels_of = slice(0, 0)

    def add(self, block: RowBlock) -> None:
        """Take a block into the sums."""
        attention, rows = block.attention, block.rows  # h, R, N
        self.to_first[block.heads, rows] = attention[..., 0]
        if self.entropy is not None:
            self.entropy[block.heads, rows] = _block_entropy(block)
        skip = max(0, self.prefix - rows.start)
        if rows.start + skip >= rows.stop:
            return
        patches = attention[:, skip:]
        if self._with_mean:
            ones = patches.new_ones(patches.shape[0], 1, patches.shape[1])
            self._row_sum[block.heads] += (ones @ patches)[:, 0]
        if not self._with_distance:
            return
        if self._pixels_of != rows:
            self._pixels = self._pixel_distances(rows.start + skip, rows.stop)
            self._pixels_of = rows
        mass = 1 - patches[..., : self.prefix].sum(dim=-1)  # h, R
        reach = _dot(patches[..., self.prefix :], self._pixels.expand(patches.shape[0], -1, -1))
        self._reach[block.heads] += (reach / mass).sum(dim=-1)

    def _pixel_distances(self, start: int, stop: int) -> Tensor:
        """|pos_i - pos_j| in input pixels, of patch tokens start..stop to all patches: (R, n)."""
        device = self.to_first.device
        cell = torch.arange(start - self.prefix, stop - self.prefix, device=device)
        dy = (cell // self.grid.width)[:, None] - torch.arange(self.grid.height, device=device)
        dx = (cell % self.grid.width)[:, None] - torch.arange(self.grid.width, device=device)
        squares = (dy * dy).float()[:, :, None] + (dx * dx).float()[:, None, :]  # R, gh, gw
        return squares.sqrt_().mul_(self.patch).flatten(1)

    @property
    def distance(self) -> Tensor:
        """Mean attention distance (H,) over all patch queries, input pixels, float32."""
        return (self._reach / (self.grid.height * self.grid.width)).float()

    @property
    def mean_row(self) -> Tensor:
        """Mean over the patch queries of their rows: (H, N)."""
        return self._row_sum / (self.grid.height * self.grid.width)

    @property
    def to_cls(self) -> Tensor:
        """Attention of every patch to token 0: (H, gh, gw)."""
        return self.to_first[:, self.prefix :].reshape(-1, *self.grid)


def _block_entropy(block: RowBlock) -> Tensor:
    """Entropy of a block's rows (h, R), nats.

    -sum a ln a = ln(sum e^z) - sum a z, and ln(sum e^z) = z_max - ln a_max: no logarithm of N x N
    values is taken. A weight of exactly 0 contributes nothing, whatever its logit.
    """
    logits = block.logits
    if block.masked:
        logits = torch.where(block.attention > 0, logits, 0.0)
    top, highest = block.logits.amax(dim=-1), block.attention.amax(dim=-1)
    return (top - highest.log() - _dot(block.attention, logits)).clamp_min_(0.0)


def _dot(left: Tensor, right: Tensor) -> Tensor:
    """Sum over the last axis of the product of two (h, R, n) tensors, in one pass: (h, R)."""
    heads, rows, width = left.shape
    product = torch.bmm(left.reshape(heads * rows, 1, width), right.reshape(heads * rows, width, 1))
    return product.view(heads, rows)
