"""Mass masks (Caron et al. 2021, figure 4), as cells and on the image's pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.domain import BoolArray, FitGeometry, FloatArray, IntArray

_ROUNDING = 1e-7
"""A mass that misses the threshold by less is float32 rounding and counts as reached."""

OUTSIDE = -1
"""The cell of a pixel that the model did not see, or that has none."""


def mass_mask(values: FloatArray, threshold: float) -> BoolArray:
    """The fewest highest cells that hold at least ``threshold`` of the map's mass.

    values: any shape, >= 0; renormalised here to sum 1. threshold: 0 < t <= 1. Of equal cells the
    first in reading order is taken. A map without mass keeps no cell.
    """
    if not 0 < threshold <= 1:
        raise UsageError(f"threshold {threshold:g} is not a share of the mass", "0 < t <= 1")
    flat = np.asarray(values, dtype=np.float64).ravel()
    kept = np.zeros(flat.size, dtype=np.bool_)
    total = flat.sum()
    if total > 0:
        order = np.argsort(-flat, kind="stable")
        mass = np.cumsum(flat[order]) / total
        count = int(np.searchsorted(mass, threshold - _ROUNDING)) + 1
        kept[order[:count]] = True
    return kept.reshape(np.shape(values))


def cell_numbers(geometry: FitGeometry) -> IntArray:
    """The cell under the centre of every pixel of the original image, counted row by row.

    (height, width) int64; ``OUTSIDE`` where the model saw nothing (``--fit crop``), or no cell is
    (``--stride``).
    """
    region, grid = geometry.covered, geometry.grid
    rows = _cells(geometry.original.height, region.top, region.bottom, grid.height)
    columns = _cells(geometry.original.width, region.left, region.right, grid.width)
    seen = (rows >= 0)[:, None] & (columns >= 0)[None, :]
    return np.where(seen, rows[:, None] * grid.width + columns[None, :], OUTSIDE)


def on_pixels(kept: BoolArray, cells: IntArray) -> BoolArray:
    """Cells (gh, gw) as a mask of the image's pixels (height, width), crisp.

    cells: from ``cell_numbers``. Pixels that the model did not see are not kept.
    """
    # The last entry is what OUTSIDE, -1, picks.
    return np.append(kept.ravel(), False)[cells]


def _cells(count: int, start: float, stop: float, cells: int) -> IntArray:
    """The row or column of cells that each pixel's centre lies in; -1 outside start..stop."""
    places = np.floor((np.arange(count) + 0.5 - start) * (cells / (stop - start))).astype(np.int64)
    return np.where((places >= 0) & (places < cells), places, -1)
