"""Tensors as numpy arrays, and the grid of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain import Size

if TYPE_CHECKING:
    from torch import Tensor

    from attnviz.attention.capture import AttentionModel
    from attnviz.domain import FloatArray


def grid_of(model: AttentionModel, batch: Tensor) -> Size:
    """Rows and columns of patches of a (B, 3, h, w) batch."""
    return Size(batch.shape[-2] // model.info.patch, batch.shape[-1] // model.info.patch)


def as_array(tensor: Tensor) -> FloatArray:
    """A tensor as float32 numpy, wherever and in whatever type it was computed."""
    array: FloatArray = tensor.float().cpu().numpy()
    return array
