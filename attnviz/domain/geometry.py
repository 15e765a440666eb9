"""Sizes, rectangles, and where a model input lies on its image."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.domain.requests import SizeRequest


class Size(NamedTuple):
    """Height and width in pixels or cells, always in this order."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.height}x{self.width}"


def grid_of(size: Size, patch: int, stride: int | None = None) -> Size:
    """Rows and columns of patches of a model input, whose corners are ``stride`` pixels apart."""
    step = stride or patch
    return Size(*((side - patch) // step + 1 for side in size))


class Margins(NamedTuple):
    """What no cell covers at each edge of a model input, as shares of its height and width."""

    y: float = 0.0
    x: float = 0.0


def as_size(size: object) -> SizeRequest:
    """The size as requests hold it: any pair of whole numbers is height and width.

    Raises:
        UsageError: Not a size.
    """
    if size is None or size == "original":
        return None if size is None else "original"
    try:
        if isinstance(size, Sequence) and not isinstance(size, str):
            height, width = map(operator.index, size)
            return Size(height, width)
        return operator.index(size)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UsageError(
            f"size {size!r} is not a size",
            'give the shorter side, (height, width), "original", or None for the native size',
        ) from None


class Box(NamedTuple):
    """A rectangle in pixel edges of the original image: (0, 0, height, width) is all of it."""

    top: float
    left: float
    bottom: float
    right: float

    @property
    def ltrb(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom: x before y, as files of boxes have them."""
        return self.left, self.top, self.right, self.bottom


@dataclass(frozen=True)
class FitGeometry:
    """Where the model's input lies on the original image.

    ``region`` is the part of the original image (in its pixel edges) that the model input
    covers exactly, edge to edge; with padding it reaches beyond the image. Cell (r, c) of the
    grid covers rows r*patch .. (r+1)*patch of the model input.

    ``stride``: the distance between patches in pixels where they overlap; None where they do not.
    A cell is then stride x stride pixels about the centre of its patch, and (patch - stride) / 2
    pixels at every edge have no cell.
    """

    original: Size
    model_input: Size
    patch: int
    region: Box
    stride: int | None = None

    def __post_init__(self) -> None:
        if self.model_input.height % self.patch or self.model_input.width % self.patch:
            raise ValueError(
                f"FitGeometry.model_input is {self.model_input}, not multiples of {self.patch}"
            )

    @property
    def grid(self) -> Size:
        """Rows and columns of patches."""
        return grid_of(self.model_input, self.patch, self.stride)

    @property
    def edge(self) -> float:
        """The pixels of the model input at each edge that no cell covers."""
        return 0.0 if self.stride is None else (self.patch - self.stride) / 2

    @property
    def margins(self) -> Margins:
        """The same as shares of the height and the width."""
        return Margins(self.edge / self.model_input.height, self.edge / self.model_input.width)

    @property
    def covered(self) -> Box:
        """The part of ``region`` that the cells cover; all of it without a stride."""
        top, left, bottom, right = self.region
        y, x = self.margins.y * (bottom - top), self.margins.x * (right - left)
        return Box(top + y, left + x, bottom - y, right - x)

    @property
    def cell_size(self) -> tuple[float, float]:
        """Height and width of one cell in pixels of the original image."""
        return (
            (self.covered.bottom - self.covered.top) / self.grid.height,
            (self.covered.right - self.covered.left) / self.grid.width,
        )

    def cell_box(self, row: int, column: int) -> Box:
        """The cell's rectangle on the original image, in pixel edges (not clipped to it)."""
        height, width = self.cell_size
        top, left = self.covered.top + row * height, self.covered.left + column * width
        return Box(top, left, top + height, left + width)

    def in_region(self, y: float, x: float) -> bool:
        """Whether the model saw the point (y, x) of the original image."""
        top, left, bottom, right = self.region
        return top <= y < bottom and left <= x < right

    def cell_at(self, y: float, x: float) -> tuple[int, int] | None:
        """The cell that covers the point (y, x) of the original image; None where none does."""
        height, width = self.cell_size
        row, column = (y - self.covered.top) // height, (x - self.covered.left) // width
        if 0 <= row < self.grid.height and 0 <= column < self.grid.width:
            return int(row), int(column)
        return None


def box_around(geometry: FitGeometry, first: tuple[int, int], last: tuple[int, int]) -> Box:
    """The rectangle from one cell (row, column) to another, both included, on the original image.

    In pixel edges, clipped to the image: cells of padding have no pixels there.
    """
    start, stop = geometry.cell_box(*first), geometry.cell_box(*last)
    height, width = map(float, geometry.original)
    return Box(
        min(max(start.top, 0.0), height),
        min(max(start.left, 0.0), width),
        min(max(stop.bottom, 0.0), height),
        min(max(stop.right, 0.0), width),
    )
