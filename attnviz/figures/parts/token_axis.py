"""The token axis of a matrix: position and name of each token, and cells as pixels.

Prefix tokens have a strip of their own, wide enough to be visible, and a gap separates them from
the patches, which follow in reading order; all rows of patches are equally long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.figures.parts import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnviz.domain import ByteArray, FloatArray, IntArray, ModelInfo, Size

_STRIP = 0.045
"""Minimum width of a prefix token in inches."""
_GAP = 0.02
_NAMED_EACH = 0.3
"""Width of a prefix token, in inches, from which every register has its own label."""
_LINE = 0.115
"""Minimum vertical distance of labels in inches."""


class Label(NamedTuple):
    """The centre of a token and the centre of its name, in inches along the axis."""

    middle: float
    at: float
    text: str


class TokenAxis:
    """The tokens along one side, ``inches`` long.

    edges (n + 1,): the first token of each cell, then N; every prefix token is a cell.
    """

    def __init__(self, edges: IntArray, grid: Size, model: ModelInfo, inches: float) -> None:
        self.edges, self.grid, self.inches = edges, grid, inches
        self.prefix = int(edges[-1]) - grid.height * grid.width
        self.cells = len(edges) - 1 - self.prefix
        self.has_cls, self.registers = model.has_cls, model.registers
        self._names = model.prefix_names
        self._gap = _GAP if self.prefix else 0.0
        even = (inches - self._gap) / (len(edges) - 1)
        self.prefix_width = max(even, min(_STRIP, 0.25 * inches / max(self.prefix, 1)))
        self.start = self.prefix * self.prefix_width + self._gap

    def position(self, token: float) -> float:
        """Inches from the start of the axis to the start of a token."""
        if token < self.prefix:
            return token * self.prefix_width
        cell = float(np.interp(token, self.edges, np.arange(len(self.edges)))) - self.prefix
        return self.start + cell * (self.inches - self.start) / self.cells

    @property
    def centres(self) -> NDArray[np.float64]:
        """Inches from the start of the axis to the centre of every cell, (n,)."""
        width = (self.inches - self.start) / self.cells
        prefix = (np.arange(self.prefix) + 0.5) * self.prefix_width
        return np.concatenate([prefix, self.start + (np.arange(self.cells) + 0.5) * width])

    def shares(self, pixels: int) -> tuple[FloatArray, slice]:
        """The share of each cell in each pixel (pixels, n), and the pixels of the gap.

        No cell is skipped: a pixel is one cell, or the mean of the cells under it.
        """
        strip = round(self.prefix * self.prefix_width / self.inches * pixels)
        strip = min(max(strip, self.prefix), pixels - 1)
        gap = max(1, round(self._gap / self.inches * pixels)) if self.prefix else 0
        start = min(strip + gap, pixels - 1)
        out = np.zeros((pixels, self.prefix + self.cells), np.float32)
        if self.prefix:
            out[:strip, : self.prefix] = area_shares(self.prefix, strip)
        out[start:, self.prefix :] = area_shares(self.cells, pixels - start)
        return out, slice(strip, start)

    def labels(self, *, across: bool) -> list[Label]:
        """Names that do not overlap: side by side (``across``) or one below the other."""
        labels: list[Label] = []
        end = -np.inf
        for middle, name in self._prefix_names(across=across):
            size = theme.text_width(name) + 0.06 if across else _LINE
            least = -0.03 if across else -0.005 - _LINE / 2
            at = max(middle, end + size / 2, least + size / 2)
            labels.append(Label(middle, at, name))
            end = at + size / 2
        length = (self.inches - self.start) / self.grid.height
        widest = theme.text_width(f"row {self.grid.height - 1}") + 0.1 if across else 0.15
        step = next(s for s in _steps() if s * length >= widest or s >= self.grid.height)
        for row in range(0, self.grid.height, step):
            first = self.prefix + row * self.grid.width
            middle = (self.position(first) + self.position(first + self.grid.width)) / 2
            name = f"row {row}"
            size = theme.text_width(name) + 0.06 if across else _LINE
            inside = middle + (size - 0.06) / 2 <= self.inches or not across
            if middle - size / 2 >= end - 1e-6 and inside:
                labels.append(Label(middle, middle, name))
                end = middle + size / 2
        return labels

    def _prefix_names(self, *, across: bool) -> list[tuple[float, str]]:
        """The centre and name of every prefix token, or of all registers together.

        Side by side there may be room for only one name, of all of them.
        """
        names = list(self._names)
        centres = [(token + 0.5) * self.prefix_width for token in range(self.prefix)]
        if self.prefix_width < _NAMED_EACH and self.registers > 1:
            others = self.prefix - self.registers
            names[others:] = [f"R1{theme.TO}R{self.registers}"]
            centres[others:] = [(others + self.registers / 2) * self.prefix_width]
        if across and len(names) > 1 and self.prefix_width < _NAMED_EACH:
            return [(self.prefix * self.prefix_width / 2, ", ".join(names))]
        return list(zip(centres, names, strict=True))


def area_shares(cells: int, pixels: int) -> FloatArray:
    """The share of each cell in each pixel, (pixels, cells); rows sum to 1.

    Cells of a pixel or more are crisp: a pixel takes the cell under its centre. Smaller cells are
    averaged by the area that they cover, so that all cells have the same weight.
    """
    out = np.zeros((pixels, cells), np.float64)
    if cells <= pixels:
        under = ((np.arange(pixels) + 0.5) * cells / pixels).astype(np.intp)
        out[np.arange(pixels), np.minimum(under, cells - 1)] = 1.0
    else:
        ends = np.arange(pixels + 1) * (cells / pixels)
        at = np.arange(cells)
        for pixel in range(pixels):
            first, last = int(ends[pixel]), min(int(np.ceil(ends[pixel + 1])), cells)
            near = at[first:last]
            covered = np.minimum(near + 1, ends[pixel + 1]) - np.maximum(near, ends[pixel])
            out[pixel, first:last] = covered
        out /= cells / pixels
    return np.asarray(out, np.float32)


def draw_gaps(pixels: ByteArray, rows: slice, columns: slice) -> ByteArray:
    """Pixels (h, w, 3) with the gaps in white between thin dark lines; changes ``pixels``."""
    for gap, part in ((rows, pixels), (columns, pixels.swapaxes(0, 1))):
        part[gap] = 255
        if gap.stop > gap.start:
            part[gap.start] = part[gap.stop - 1] = theme.rgb_of(theme.INK)
    return pixels


def _steps() -> Sequence[int]:
    return [factor * 10**power for power in range(5) for factor in (1, 2, 5)] + [10**9]
