"""One entry for all kinds of figures: a batch and a request in, one result an image out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnviz.domain import FitGeometry, Maps
from attnviz.domain.kinds import kind_of
from attnviz.domain.options import resolve
from attnviz.errors import ImageError

Colour = tuple[float, float, float]

if TYPE_CHECKING:
    from torch import Tensor

    from attnviz.attention.capture import AttentionModel
    from attnviz.domain.kinds import CommandRequest


def compute(
    model: AttentionModel,
    batch: Tensor,
    geometries: Sequence[FitGeometry],
    request: CommandRequest,
    reference: Any = None,
    black: Sequence[Colour] = (),
) -> list[Maps]:
    """The maps that a request asks for, for each image of a (B, 3, h, w) batch.

    reference: what the kind makes of the request's second image, where it has one. black: what a
    black pixel of each image became by its normalisation; without it, what it becomes by the
    model's.

    Raises:
        UsageError: Something is out of range for this model.
        ImageError: A point to look from lies outside an image.
        AttentionError: The captured attention breaks an invariant.
    """
    kind = kind_of(request)
    more: dict[str, Any] = {}
    if "cells" in kind.computed_with:
        more["cells"] = [query_cells(request, geometry) for geometry in geometries]
    if "geometries" in kind.computed_with:
        more["geometries"] = geometries
    if "reference" in kind.computed_with:
        more["reference"] = reference
    if "black" in kind.computed_with:
        more["black"] = black or [model_black(model)] * len(batch)
    results: list[Maps] = resolve(kind.compute)(model, batch, request, **more)
    return results


def model_black(model: AttentionModel) -> Colour:
    """What a black pixel becomes by the normalisation of a model."""
    red, green, blue = (
        -mean / std for mean, std in zip(model.info.mean, model.info.std, strict=True)
    )
    return red, green, blue


def query_cells(request: Any, geometry: FitGeometry) -> list[tuple[int, int]]:
    """The (row, column) cells that a request with cells and points looks from, in the order asked.

    Without either: the patch in the middle of each quadrant.

    Raises:
        ImageError: A cell or point lies outside the grid.
    """
    grid = geometry.grid
    cells = list(request.cells)
    for row, column in cells:
        if not (0 <= row < grid.height and 0 <= column < grid.width):
            raise ImageError(
                f"cell {row},{column} lies outside the grid of {grid.height} rows and "
                f"{grid.width} columns",
                f"rows run from 0 to {grid.height - 1}, columns from 0 to {grid.width - 1}",
            )
    for x, y in request.points:
        cell = geometry.cell_at(y, x)
        if cell is None and geometry.edge and geometry.in_region(y, x):
            raise ImageError(
                f"point x={x:g}, y={y:g} lies in the edge of {geometry.edge:g} input pixels that "
                "has no cell, since patches overlap",
                "choose a point further inside, or omit --stride",
            )
        if cell is None:
            raise ImageError(
                f"point x={x:g}, y={y:g} lies outside what the model sees of the image "
                f"({geometry.original.width} wide, {geometry.original.height} high)",
                "points are x,y in pixels of the original image; see --fit for what is cut off",
            )
        cells.append(cell)
    if cells:
        return cells
    rows = (grid.height // 4, min(3 * grid.height // 4, grid.height - 1))
    columns = (grid.width // 4, min(3 * grid.width // 4, grid.width - 1))
    return [(row, column) for row in rows for column in columns]
