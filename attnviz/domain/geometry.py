"""Sizes, rectangles, and where a model input lies on its image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Size(NamedTuple):
    """Height and width in pixels or cells, always in this order."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.height}x{self.width}"


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
    """

    original: Size
    model_input: Size
    patch: int
    region: Box

    def __post_init__(self) -> None:
        if self.model_input.height % self.patch or self.model_input.width % self.patch:
            raise ValueError(
                f"FitGeometry.model_input is {self.model_input}, not multiples of {self.patch}"
            )

    @property
    def grid(self) -> Size:
        """Rows and columns of patches."""
        return Size(self.model_input.height // self.patch, self.model_input.width // self.patch)

    @property
    def cell_size(self) -> tuple[float, float]:
        """Height and width of one cell in pixels of the original image."""
        return (
            (self.region.bottom - self.region.top) / self.grid.height,
            (self.region.right - self.region.left) / self.grid.width,
        )

    def cell_box(self, row: int, column: int) -> Box:
        """The cell's rectangle on the original image, in pixel edges (not clipped to it)."""
        height, width = self.cell_size
        top, left = self.region.top + row * height, self.region.left + column * width
        return Box(top, left, top + height, left + width)

    def cell_at(self, y: float, x: float) -> tuple[int, int] | None:
        """The cell that covers the point (y, x) of the original image, or None outside."""
        height, width = self.cell_size
        row, column = (y - self.region.top) // height, (x - self.region.left) // width
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
