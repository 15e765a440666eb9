"""The figure of the ``patch`` command: what chosen patches look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.figures.parts.caption import (
    entropy_words,
    layer_words,
    prefix_words,
    sheet_with_caption,
)
from attnviz.figures.parts.map_table import OWN_SCALES, Heading, draw_heads
from attnviz.figures.parts.panels import (
    Edges,
    Panel,
    Tag,
    image_panel,
    map_panel,
    overlay_panel,
    panel_aspect,
    panel_rows,
    shared_bar,
)
from attnviz.figures.parts.scale import common_limits, scale_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import DrawStyle, FigureImage, ModelInfo, PatchMaps, Size
    from attnviz.figures.parts.page import Sheet
    from attnviz.figures.parts.scale import Limits

_LIGHT, _DARK = "#ffffff", "#000000"


def draw_patch(
    maps: PatchMaps,
    image: FigureImage,
    model: ModelInfo,
    style: DrawStyle,
    *,
    each_head: bool = False,
) -> tuple[Figure, ...]:
    """The picture with numbered queries, and each query's map with the query's own cell marked.

    The maps are means over the heads; ``each_head`` adds every head's own, queries down and heads
    across. Marks are told apart by number, not by colour.
    """
    means = maps.attention.mean(axis=1)  # (Q, gh, gw)
    shared = common_limits(maps.attention if each_head else means, style)
    count = len(maps.heads)
    own = f"colours: means from lowest to highest, in the grid {OWN_SCALES}"
    parts = [
        layer_words(maps.layer, model),
        "attention of single patches, given as (row, column)",
        f"mean of {count} heads" if count > 1 else f"head {maps.heads[0]}",
        own if each_head and not shared else scale_words(style),
        entropy_words(maps.tokens, count),
        prefix_words(maps.prefix, model),
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    _means(sheet, maps, image, shared)
    if each_head:
        _each_head(sheet, maps, image, shared)
    if shared:
        shared_bar(sheet, shared, "Attention")
    return sheet.figures()


def _means(sheet: Sheet, maps: PatchMaps, image: FigureImage, shared: Limits | None) -> None:
    """The numbered picture and every query's mean over heads; one alone also on the picture."""
    grid, style = image.geometry.grid, sheet.style
    means, entropies = maps.attention.mean(axis=1), maps.entropy.mean(axis=1).tolist()
    panels = [_numbered(maps, image)]
    for index, ((row, column), values) in enumerate(zip(maps.cells.tolist(), means, strict=True)):
        place = f"{index + 1} · ({row}, {column})"
        titles = (f"{place} · H {entropies[index]:.2f}", place, str(index + 1))
        mark = (cell_mark(row, column, grid),)
        panels.append(map_panel(titles, values, style, shared, edges=mark))
    if len(means) == 1:
        panels.append(overlay_panel(("On picture",), image, means[0], style, shared))
    panel_rows(sheet, panels, panel_aspect(image))


def _each_head(sheet: Sheet, maps: PatchMaps, image: FigureImage, shared: Limits | None) -> None:
    """Queries down, heads across."""
    cells = maps.cells.tolist()
    grid, aspect = image.geometry.grid, panel_aspect(image)
    rows = [
        Heading((f"{index} · ({row}, {column})",)) for index, (row, column) in enumerate(cells, 1)
    ]
    marks = [(cell_mark(row, column, grid),) for row, column in cells]
    draw_heads(sheet, rows, maps.heads, maps.attention, aspect, shared, marks)


def _numbered(maps: PatchMaps, image: FigureImage) -> Panel:
    """The picture with the box and the number of every query."""
    grid = image.geometry.grid
    cells = maps.cells.tolist()
    edges = tuple(cell_mark(row, column, grid) for row, column in cells)
    return image_panel(image, edges, cell_tags(cells, grid))


def cell_tags(cells: Sequence[Sequence[int]], grid: Size) -> tuple[Tag, ...]:
    """The number of every cell (row, column), from 1, at its upper right corner."""
    return tuple(
        Tag((column + 1) / grid.width, row / grid.height, str(index))
        for index, (row, column) in enumerate(cells, 1)
    )


def cell_mark(row: int, column: int, grid: Size) -> Edges:
    """The box of a cell: light inside a dark rim, so that it shows on any ground."""
    left, right = column / grid.width, (column + 1) / grid.width
    top, bottom = row / grid.height, (row + 1) / grid.height
    corners = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
    return Edges((np.array(corners),), _LIGHT, _DARK)
