"""The outline of a mask along its cells' edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import BoolArray


def mask_outline(mask: BoolArray) -> list[NDArray[np.float64]]:
    """The edges between cells inside and outside of a mask (gh, gw), as straight runs.

    Each run is (2, 2): its two ends as (x, y) in cells, 0..gw and 0..gh. The border of the grid is
    an edge of the cells that touch it.
    """
    padded = np.pad(mask, 1)
    across = padded[1:, 1:-1] != padded[:-1, 1:-1]  # (gh + 1, gw): edges that run along x
    down = padded[1:-1, 1:] != padded[1:-1, :-1]  # (gh, gw + 1): edges that run along y
    runs = [np.array([[start, y], [stop, y]], float) for y, start, stop in _runs(across)]
    runs += [np.array([[x, start], [x, stop]], float) for x, start, stop in _runs(down.T)]
    return runs


def _runs(rows: BoolArray) -> list[tuple[int, int, int]]:
    """(row, start, stop) of every unbroken run of True."""
    steps = np.diff(np.pad(rows, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    row, start = np.nonzero(steps == 1)
    _, stop = np.nonzero(steps == -1)
    return list(zip(row.tolist(), start.tolist(), stop.tolist(), strict=True))
