"""The figure of the ``patch`` command: attention of chosen patches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.figures.parts.caption import (
    entropy_text,
    layer_text,
    prefix_shares,
    prefix_text,
    sheet_with_caption,
)
from attnviz.figures.parts.colour_bars import own_scales_bar, shared_bar
from attnviz.figures.parts.map_table import OWN_SCALES, Heading, draw_head_table
from attnviz.figures.parts.panels import (
    Edges,
    Panel,
    Tag,
    image_panel,
    map_panel,
    overlay_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.scale import common_limits, scale_text

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
    """The image with numbered queries, and the map of each query with its own cell marked.

    The maps are means over the heads; ``each_head`` adds those of every head, a row per query and a
    column per head. Marks are distinguished by number, not by colour.
    """
    means = maps.attention.mean(axis=1)  # (Q, gh, gw)
    shared = common_limits(maps.attention if each_head else means, style)
    count = len(maps.heads)
    own = f"colours: means from lowest to highest, in the grid {OWN_SCALES}"
    which = "of" if maps.received is None else "to"
    parts = [
        layer_text(maps.layer, model),
        f"attention {which} single patches, given as (row, column)",
        f"mean of {count} heads" if count > 1 else f"head {maps.heads[0]}",
        own if each_head and not shared else scale_text(style),
        *_numbers_text(maps, model),
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    _means(sheet, maps, image, shared)
    if each_head:
        _each_head(sheet, maps, image, shared)
    if shared:
        shared_bar(sheet, shared, "Attention")
    elif each_head:
        own_scales_bar(sheet)
    return sheet.figures()


def _numbers(maps: PatchMaps) -> list[str]:
    """A number of each patch's map, mean over heads: its entropy, or what it receives."""
    if maps.received is not None:
        return [f"c {value:.2f}" for value in maps.received.mean(axis=1).tolist()]
    assert maps.entropy is not None
    return [f"H {value:.2f}" for value in maps.entropy.mean(axis=1).tolist()]


def _numbers_text(maps: PatchMaps, model: ModelInfo) -> list[str]:
    """What these numbers are, and what is not drawn."""
    if maps.received is None:
        return [entropy_text(maps.tokens, len(maps.heads)), prefix_text(maps.prefix, model)]
    mean = "mean over heads of " if len(maps.heads) > 1 else ""
    text = f"c: {mean}the attention received from all {maps.tokens} tokens, on average 1"
    if not model.prefix:
        return [text]
    # Of a column, whose sum is not 1, shares are those of the sum.
    shares = maps.prefix.mean(axis=1) / maps.received.mean(axis=1)[:, None]
    return [text, "of c, not drawn: " + ", ".join(prefix_shares(shares, model, "from"))]


def _means(sheet: Sheet, maps: PatchMaps, image: FigureImage, shared: Limits | None) -> None:
    """The numbered image and the mean map of every query, of a single one also on the image."""
    grid, style = image.geometry.grid, sheet.style
    means = maps.attention.mean(axis=1)
    numbers = _numbers(maps)
    panels = [_numbered(maps, image)]
    for index, ((row, column), values) in enumerate(zip(maps.cells.tolist(), means, strict=True)):
        name = f"{index + 1} · ({row}, {column})"
        titles = (f"{name} · {numbers[index]}", name, str(index + 1))
        mark = (cell_mark(row, column, grid),)
        panels.append(map_panel(titles, values, style, shared, edges=mark))
    if len(means) == 1:
        panels.append(overlay_panel(("On picture",), image, means[0], style, shared))
    panel_rows(sheet, panels, panel_aspect(image))


def _each_head(sheet: Sheet, maps: PatchMaps, image: FigureImage, shared: Limits | None) -> None:
    """The map of every query and head."""
    cells = maps.cells.tolist()
    grid, aspect = image.geometry.grid, panel_aspect(image)
    rows = [
        Heading((f"{index} · ({row}, {column})",)) for index, (row, column) in enumerate(cells, 1)
    ]
    marks = [(cell_mark(row, column, grid),) for row, column in cells]
    draw_head_table(sheet, rows, maps.heads, maps.attention, aspect, shared, marks)


def _numbered(maps: PatchMaps, image: FigureImage) -> Panel:
    """The image with the box and the number of every query."""
    grid = image.geometry.grid
    cells = maps.cells.tolist()
    edges = tuple(cell_mark(row, column, grid) for row, column in cells)
    return image_panel(image, edges, cell_tags(cells, grid))


def cell_tags(cells: Sequence[Sequence[int]], grid: Size) -> tuple[Tag, ...]:
    """The number of every cell (row, column), from 1, at its upper right corner."""
    return tuple(
        Tag((column + 1) / grid.width, row / grid.height, str(index), 1 / grid.height)
        for index, (row, column) in enumerate(cells, 1)
    )


def cell_mark(row: int, column: int, grid: Size) -> Edges:
    """The box of a cell: a light line with a dark rim, visible on any background."""
    left, right = column / grid.width, (column + 1) / grid.width
    top, bottom = row / grid.height, (row + 1) / grid.height
    corners = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
    return Edges((np.array(corners),), _LIGHT, _DARK)
