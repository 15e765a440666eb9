"""Tensors as numpy arrays, and the tokens of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from attnviz.domain import Size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnviz.attention.capture import AttentionModel
    from attnviz.domain import FloatArray


@dataclass(frozen=True)
class TokenLayout:
    """The N tokens of an image: ``prefix`` tokens, then the patches of ``grid``, row by row.

    ``step``: distance between neighbouring patches in input pixels.
    """

    prefix: int
    grid: Size
    step: int

    @property
    def patches(self) -> int:
        """Number of patches."""
        return self.grid.height * self.grid.width

    @property
    def tokens(self) -> int:
        """N."""
        return self.prefix + self.patches

    def to_grid(self, rows: FloatArray) -> FloatArray:
        """The patch part of rows (..., N) as (..., gh, gw), contiguous."""
        return np.ascontiguousarray(rows[..., self.prefix :]).reshape(*rows.shape[:-1], *self.grid)


def layout_of(model: AttentionModel, batch: Tensor) -> TokenLayout:
    """The tokens that a model makes of each image of a (B, 3, h, w) batch."""
    info = model.info
    return TokenLayout(info.prefix, info.grid_of(Size(*batch.shape[-2:])), info.step)


def as_array(tensor: Tensor) -> FloatArray:
    """A tensor of any device and number type as float32 numpy."""
    array: FloatArray = tensor.float().cpu().numpy()
    return array


def head_index(heads: Sequence[int], device: torch.device) -> Tensor:
    """Indices of heads (h,) on a device, to index a tensor there."""
    return torch.tensor(list(heads), dtype=torch.long, device=device)
