"""Panels in rows: images and maps with their titles, colour bars and marks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.domain import Interpolation, Size
from attnviz.figures.parts import theme
from attnviz.figures.parts.colour_bars import BAR_INCHES, ColourScale, slim_bar
from attnviz.figures.parts.layout import GAP, MARGIN, PANEL_MAX, Rect, grid_of, shown_aspect
from attnviz.figures.parts.overlay import (
    colour,
    dimmed_cells,
    enlarge,
    model_view,
    on_cells,
    overlay,
)
from attnviz.figures.parts.scale import Limits, own_limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnviz.domain import BoolArray, ByteArray, DrawStyle, FigureImage, FloatArray
    from attnviz.domain.geometry import Margins
    from attnviz.figures.parts.page import Page, Raster, Sheet

TITLE_INCHES = 0.15
ROW_GAP = 0.09
_EMPTY = "#f0f0f0"
_SWATCH = 0.075


class Edges(NamedTuple):
    """Lines on a panel, with a rim: runs (n, 2) of (x, y), 0..1 over the cells.

    on_image: 0..1 over all that the model saw, which is more than the cells where patches overlap.
    """

    runs: tuple[NDArray[np.float64], ...]
    colour: str
    rim: str
    width: float = 0.9
    on_image: bool = False


class Tag(NamedTuple):
    """A number beside a cell, whose upper right corner is (x, y), 0..1 over the cells."""

    x: float
    y: float
    text: str
    cell_height: float = 0.0


@dataclass(frozen=True)
class Panel:
    """One panel of a figure.

    titles: from long to short; all panels of a row use the longest that fits everywhere.
    limits: of the panel's own colour bar below it; None for no bar. cmap: its colour map; None for
    that of the figure. text: inside the panel, in wordings from long to short.
    of_cells: the raster is that of the cells alone, and not of all that the model saw. margins:
    what no cell covers at the edges; None takes those of the page.
    """

    titles: tuple[str, ...]
    raster: Raster
    cells: Size | None = None
    limits: Limits | None = None
    swatch: str | None = None
    edges: tuple[Edges, ...] = ()
    tags: tuple[Tag, ...] = ()
    text: tuple[str, ...] = ()
    of_cells: bool = False
    margins: Margins | None = None
    cmap: str | None = None


def panel_aspect(image: FigureImage) -> float:
    """Aspect ratio (width / height) of the region of the image that the model saw."""
    region = image.geometry.region
    return shown_aspect(region.bottom - region.top, region.right - region.left)


def _map_pixels(
    values: FloatArray, limits: Limits, cmap: str, how: Interpolation, size: Size
) -> ByteArray:
    if how is Interpolation.BILINEAR:
        return colour(enlarge(values, size, how), limits, cmap)
    cells = np.arange(values.size, dtype=np.float32).reshape(values.shape)
    # Colours are looked up once per cell and then only copied.
    return colour(values, limits, cmap).reshape(-1, 3)[enlarge(cells, size, how).astype(np.intp)]


def _overlay_pixels(
    image: FigureImage,
    values: FloatArray,
    limits: Limits,
    style: DrawStyle,
    size: Size,
) -> ByteArray:
    def draw(pixels: ByteArray) -> ByteArray:
        sampled = enlarge(values, Size(*pixels.shape[:2]), style.interpolation)
        return overlay(pixels, sampled, limits, style.cmap, style.alpha)

    return on_cells(model_view(image, size), image.geometry, draw)


def image_panel(
    image: FigureImage, edges: tuple[Edges, ...] = (), tags: tuple[Tag, ...] = ()
) -> Panel:
    """The image as the model saw it, under its name."""
    return Panel((theme.printable(image.name),), partial(model_view, image), edges=edges, tags=tags)


def map_panel(
    titles: tuple[str, ...],
    values: FloatArray,
    style: DrawStyle,
    shared: Limits | None,
    *,
    swatch: str | None = None,
    edges: tuple[Edges, ...] = (),
    tags: tuple[Tag, ...] = (),
) -> Panel:
    """A map in colours, on the shared scale, or on its own scale with a colour bar below."""
    limits = shared or own_limits(values)
    raster = partial(_map_pixels, values, limits, style.cmap, style.interpolation)
    crisp = Size(*values.shape) if style.interpolation is Interpolation.NEAREST else None
    own = None if shared else limits
    return Panel(titles, raster, crisp, own, swatch, edges, tags, of_cells=True)


def empty_panel(titles: tuple[str, ...], reason: tuple[str, ...]) -> Panel:
    """A plain panel that says why there is no map, in the longest wording that fits."""
    return Panel(titles, _plain, text=reason)


def _plain(size: Size) -> ByteArray:
    return np.full((*size, 3), theme.rgb_of(_EMPTY), np.uint8)


def overlay_panel(
    titles: tuple[str, ...],
    image: FigureImage,
    values: FloatArray,
    style: DrawStyle,
    shared: Limits | None,
) -> Panel:
    """A map over the image."""
    limits = shared or own_limits(values)
    raster = partial(_overlay_pixels, image, values, limits, style)
    return Panel(titles, raster, limits=None if shared else limits)


def dimmed_raster(image: FigureImage, kept: BoolArray) -> Raster:
    """The image, dimmed where cells are not kept. kept: (gh, gw)."""
    return partial(_dimmed_pixels, image, kept)


def _dimmed_pixels(image: FigureImage, kept: BoolArray, size: Size) -> ByteArray:
    return dimmed_cells(model_view(image, size), image.geometry, kept)


def panel_rows(
    sheet: Sheet,
    panels: Sequence[Panel],
    aspect: float,
    *,
    at_least: int = 1,
    tallest: float = PANEL_MAX,
) -> None:
    """Panels side by side in as many rows as needed; every panel has the image's shape.

    at_least, tallest: see ``grid_of``.
    """
    grid = grid_of(len(panels), sheet.width, aspect, at_least=at_least, tallest=tallest)
    rank = _title_rank(panels, grid.slot)
    for start in range(0, len(panels), grid.columns):
        row = panels[start : start + grid.columns]
        height = TITLE_INCHES + grid.panel_height
        height += BAR_INCHES if any(panel.limits for panel in row) else 0.0
        page = sheet.room(height)
        for column, panel in enumerate(row):
            left = MARGIN + column * (grid.slot + GAP)
            box = Rect(left, page.y + TITLE_INCHES, grid.panel_width, grid.panel_height)
            _title(page, panel, rank, left, grid.slot)
            draw_panel(page, panel, box)
            if panel.limits:
                width = max(grid.panel_width, min(grid.slot, 0.9))
                scale = ColourScale(panel.limits, panel.cmap or sheet.style.cmap)
                slim_bar(page, scale, left, box.bottom, width)
        page.y += height + ROW_GAP


def _title_rank(panels: Sequence[Panel], slot: float) -> int:
    """The index in ``titles`` of the longest wording that fits for all panels."""
    most = max(len(panel.titles) for panel in panels)
    for rank in range(most):
        fits = (
            theme.text_width(_wording(panel, rank), theme.TITLE_PT) <= slot - _indent(panel)
            for panel in panels
            if len(panel.titles) > 1
        )
        if all(fits):
            return rank
    return most - 1


def _wording(panel: Panel, rank: int) -> str:
    return panel.titles[min(rank, len(panel.titles) - 1)]


def _indent(panel: Panel) -> float:
    return _SWATCH + 0.04 if panel.swatch else 0.0


def _title(page: Page, panel: Panel, rank: int, left: float, slot: float) -> None:
    base = page.y + TITLE_INCHES - 0.045
    if panel.swatch:
        page.block(Rect(left, base - _SWATCH, _SWATCH, _SWATCH), panel.swatch)
    indent = _indent(panel)
    title = theme.shorten(_wording(panel, rank), slot - indent, theme.TITLE_PT)
    page.text(left + indent, base, title, size=theme.TITLE_PT)


def draw_panel(page: Page, panel: Panel, box: Rect) -> None:
    """The pixels of a panel and its marks."""
    whole = page.snapped(box)
    margins = page.margins if panel.margins is None else panel.margins
    box = page.snapped(_inside(whole, margins)) if any(margins) else whole
    if panel.of_cells and any(margins):
        page.image(_plain, whole)  # a block would lie over the cells
    page.image(panel.raster, box if panel.of_cells else whole, panel.cells)
    for edges in panel.edges:
        on = whole if edges.on_image else box
        origin, scale = np.array([on.left, on.top]), np.array([on.width, on.height])
        for colour_, width in ((edges.rim, edges.width + 1.1), (edges.colour, edges.width)):
            for run in edges.runs:
                page.stroke(origin + run * scale, colour_, width)
    plates: list[Rect] = []
    for tag in panel.tags:
        plates.append(_tag(page, tag, box, plates))
    if panel.text:
        _text_inside(page, panel.text, whole)


def _inside(box: Rect, margins: Margins) -> Rect:
    """The part of a box that cells cover."""
    y, x = margins.y * box.height, margins.x * box.width
    return Rect(box.left + x, box.top + y, box.width - 2 * x, box.height - 2 * y)


def _text_inside(page: Page, wordings: tuple[str, ...], box: Rect) -> None:
    """The first of the wordings that fits into the panel, or what fits of the last; centred."""
    width = box.width - 0.08
    room = max(1, int((box.height - 0.04) / theme.LINE_INCHES))
    texts = [theme.wrap(theme.printable(w).split(), width, separator=" ") for w in wordings]
    lines = next((text for text in texts if len(text) <= room), texts[-1][:room])
    middle = box.left + box.width / 2
    top = box.top + (box.height - len(lines) * theme.LINE_INCHES) / 2
    for number, line in enumerate(lines, 1):
        base = top + number * theme.LINE_INCHES - 0.035
        page.text(middle, base, line, colour=theme.QUIET, align="center")


def _tag(page: Page, tag: Tag, box: Rect, others: Sequence[Rect]) -> Rect:
    """A number on a dark plate near its cell, inside the panel and clear of the other plates."""
    width, height, gap = theme.text_width(tag.text) + 0.05, 0.115, 0.03
    x, y = box.left + tag.x * box.width, box.top + tag.y * box.height
    below = y + tag.cell_height * box.height
    # Above and to the right of the cell if that is inside, further away where others are.
    lefts = [x + gap, x - gap - width, x + 2 * gap + width, x - 2 * (gap + width)]
    tops = [y - gap - height, below + gap, below + 2 * gap + height, y - 2 * (gap + height)]
    corners = [(left, top) for top in tops for left in lefts]
    clamped = [
        (max(box.left, min(left, box.right - width)), max(box.top, min(top, box.bottom - height)))
        for left, top in corners
    ]
    # In a panel that is smaller than a number and its point, plates are moved into the panel.
    inside = [corner for corner, moved in zip(corners, clamped, strict=True) if corner == moved]
    plates = [Rect(left, top, width, height) for left, top in (*inside, *clamped)]
    clear = (each for each in plates if not any(_overlap(each, other) for other in others))
    plate = next(clear, plates[0])
    page.block(plate, theme.INK)
    page.text(
        plate.left + width / 2,
        plate.bottom - 0.02,
        tag.text,
        colour="#ffffff",
        align="center",
    )
    return plate


def _overlap(one: Rect, other: Rect) -> bool:
    return (
        one.left < other.right
        and other.left < one.right
        and one.top < other.bottom
        and other.top < one.bottom
    )
