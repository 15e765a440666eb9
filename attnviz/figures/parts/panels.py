"""Panels in rows: pictures and maps with their titles, colour bars and marks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.domain import Interpolation, Size
from attnviz.figures.parts import theme
from attnviz.figures.parts.layout import GAP, MARGIN, Rect, grid_of, shown_aspect, tick_text, ticks
from attnviz.figures.parts.overlay import colour, enlarge, mix, model_view, overlay_weight
from attnviz.figures.parts.scale import Limits, own_limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnviz.domain import ByteArray, DrawStyle, FigureImage, FloatArray
    from attnviz.figures.parts.page import Page, Raster, Sheet

TITLE_INCHES = 0.15
BAR_INCHES = 0.14
ROW_GAP = 0.09
EMPTY = "#f0f0f0"
_BAR_THICK = 0.055
_SWATCH = 0.075


class Edges(NamedTuple):
    """Lines on a panel, with a rim: runs (n, 2) of (x, y) as shares of the panel, 0..1."""

    runs: tuple[NDArray[np.float64], ...]
    colour: str
    rim: str
    width: float = 0.9


class Tag(NamedTuple):
    """A number beside the point (x, y) of a panel, in shares of the panel."""

    x: float
    y: float
    words: str


@dataclass(frozen=True)
class Panel:
    """One panel. titles: wordings from long to short; a row uses the longest that fits everywhere.

    limits: those of a colour bar of its own below the panel, or None for no bar. words: text inside
    the panel.
    """

    titles: tuple[str, ...]
    raster: Raster
    cells: Size | None = None
    limits: Limits | None = None
    swatch: str | None = None
    edges: tuple[Edges, ...] = ()
    tags: tuple[Tag, ...] = ()
    words: str = ""


def panel_aspect(image: FigureImage) -> float:
    """Width over height of what the model saw of the picture."""
    region = image.geometry.region
    return shown_aspect(region.bottom - region.top, region.right - region.left)


def _map_pixels(
    values: FloatArray, limits: Limits, cmap: str, how: Interpolation, size: Size
) -> ByteArray:
    if how is Interpolation.BILINEAR:
        return colour(enlarge(values, size, how), limits, cmap)
    cells = np.arange(values.size, dtype=np.float32).reshape(values.shape)
    # Colours are looked up once a cell and then only copied.
    return colour(values, limits, cmap).reshape(-1, 3)[enlarge(cells, size, how).astype(np.intp)]


def _laid_over(
    image: FigureImage,
    values: FloatArray,
    limits: Limits,
    style: DrawStyle,
    size: Size,
) -> ByteArray:
    drawn = enlarge(values, size, style.interpolation)
    weight = overlay_weight(drawn, limits, style.alpha)
    return mix(model_view(image, size), colour(drawn, limits, style.cmap), weight)


def image_panel(
    image: FigureImage, edges: tuple[Edges, ...] = (), tags: tuple[Tag, ...] = ()
) -> Panel:
    """The picture as the model saw it, under its name."""
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
    """A map in colours: on the shared scale, or on its own with a colour bar below."""
    limits = shared or own_limits(values)
    raster = partial(_map_pixels, values, limits, style.cmap, style.interpolation)
    crisp = Size(*values.shape) if style.interpolation is Interpolation.NEAREST else None
    return Panel(titles, raster, crisp, None if shared else limits, swatch, edges, tags)


def empty_panel(titles: tuple[str, ...], reason: str) -> Panel:
    """A plain panel that says why there is no map."""
    return Panel(titles, _plain, words=reason)


def _plain(size: Size) -> ByteArray:
    return np.full((*size, 3), theme.rgb_of(EMPTY), np.uint8)


def overlay_panel(
    titles: tuple[str, ...],
    image: FigureImage,
    values: FloatArray,
    style: DrawStyle,
    shared: Limits | None,
) -> Panel:
    """A map laid over the picture."""
    limits = shared or own_limits(values)
    raster = partial(_laid_over, image, values, limits, style)
    return Panel(titles, raster, limits=None if shared else limits)


def panel_rows(sheet: Sheet, panels: Sequence[Panel], aspect: float, *, at_least: int = 1) -> None:
    """Panels side by side in as many rows as needed; every panel has the picture's shape."""
    grid = grid_of(len(panels), sheet.width, aspect, at_least=at_least)
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
                wide = max(grid.panel_width, min(grid.slot, 0.9))
                slim_bar(page, panel.limits, sheet.style.cmap, left, box.bottom, wide)
        page.y += height + ROW_GAP


def _title_rank(panels: Sequence[Panel], slot: float) -> int:
    """The longest wording, by its place in ``titles``, that fits for all panels of the rows."""
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
    words = theme.shortened(_wording(panel, rank), slot - indent, theme.TITLE_PT)
    page.text(left + indent, base, words, size=theme.TITLE_PT)


def draw_panel(page: Page, panel: Panel, box: Rect) -> None:
    """The pixels of a panel with its marks."""
    box = page.snapped(box)
    page.image(panel.raster, box, panel.cells)
    origin, scale = np.array([box.left, box.top]), np.array([box.width, box.height])
    for edges in panel.edges:
        for colour_, width in ((edges.rim, edges.width + 1.1), (edges.colour, edges.width)):
            for run in edges.runs:
                page.stroke(origin + run * scale, colour_, width)
    placed: list[Rect] = []
    for tag in panel.tags:
        placed.append(_tag(page, tag, box, placed))
    if panel.words:
        _words_inside(page, panel.words, box)


def _words_inside(page: Page, words: str, box: Rect) -> None:
    """As many lines as the panel has room for, in its middle."""
    lines = theme.wrapped(theme.printable(words).split(), box.width - 0.08, joint=" ")
    room = max(1, int((box.height - 0.04) / theme.LINE_INCHES))
    if len(lines) > room:
        lines = [*lines[: room - 1], theme.shortened(f"{lines[room - 1]}…", box.width - 0.08)]
    middle, top = box.left + box.width / 2, box.top + box.height / 2
    top -= len(lines) * theme.LINE_INCHES / 2
    for number, line in enumerate(lines, 1):
        base = top + number * theme.LINE_INCHES - 0.035
        page.text(middle, base, line, colour=theme.QUIET, align="center")


def _tag(page: Page, tag: Tag, box: Rect, placed: Sequence[Rect]) -> Rect:
    """A number on a dark plate, beside its point, inside the panel and clear of those placed."""
    wide, high, away = theme.text_width(tag.words) + 0.05, 0.115, 0.03
    x, y = box.left + tag.x * box.width, box.top + tag.y * box.height
    # Up and to the right of the point where that is inside; further off where others stand.
    lefts = [x + away, x - away - wide, x + 2 * away + wide, x - 2 * (away + wide)]
    tops = [y - away - high, y + away, y + 2 * away + high, y - 2 * (away + high)]
    places = [(left, top) for top in tops for left in lefts]
    moved = [
        (max(box.left, min(left, box.right - wide)), max(box.top, min(top, box.bottom - high)))
        for left, top in places
    ]
    # In a panel that is lower or narrower than a number and its point, plates are moved into it.
    inside = [place for place, other in zip(places, moved, strict=True) if place == other]
    plates = [Rect(left, top, wide, high) for left, top in (*inside, *moved)]
    clear = (each for each in plates if not any(_overlap(each, other) for other in placed))
    plate = next(clear, plates[0])
    page.block(plate, theme.INK)
    page.text(
        plate.left + wide / 2,
        plate.bottom - 0.02,
        tag.words,
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


def gradient(cmap: str, size: Size) -> ByteArray:
    """All colours of a map from left to right: the raster of a colour bar."""
    ramp = (np.arange(size.width, dtype=np.float32) + np.float32(0.5)) / np.float32(size.width)
    return np.repeat(colour(ramp, Limits(0.0, 1.0), cmap)[None], size.height, axis=0)


def slim_bar(
    page: Page,
    limits: Limits,
    cmap: str,
    left: float,
    top: float,
    width: float,
    ends: tuple[str, str] | None = None,
) -> None:
    """A colour bar on one line with its two numbers at its ends: ``0 ▬▬▬ 0.023``.

    ends: the numbers in words, where they are not to share their decimal places.
    """
    low, high = ends or theme.number_pair(*limits)
    base = top + BAR_INCHES - 0.025
    start = left + theme.text_width(low) + 0.04
    stop = left + width - theme.text_width(high) - 0.04
    page.text(left, base, low)
    page.text(left + width, base, high, align="right")
    if stop > start:
        bar = Rect(start, base - 0.035 - _BAR_THICK / 2, stop - start, _BAR_THICK)
        page.image(partial(gradient, cmap), page.snapped(bar))


def shared_bar(sheet: Sheet, limits: Limits, what: str) -> None:
    """The one colour bar of panels that share a scale, with numbers along it."""
    page = sheet.room(0.3)
    left = MARGIN + theme.text_width(what, theme.TITLE_PT) + 0.12
    width = min(2.6, sheet.width - left - 0.25)
    page.text(MARGIN, page.y + 0.095, what, size=theme.TITLE_PT)
    bar = page.snapped(Rect(left, page.y + 0.02, width, 0.085))
    page.image(partial(gradient, sheet.style.cmap), bar)
    inner = [value for value in ticks(*limits, most=5) if limits.low < value < limits.high]
    low, high = theme.number_pair(*limits)
    span = limits.high - limits.low
    named = zip(inner, tick_text(inner), strict=True)
    last = bar.right - theme.text_width(high) / 2
    reached = bar.left + theme.text_width(low) / 2
    for value, words in ((limits.low, low), *named, (limits.high, high)):
        x = bar.left + (value - limits.low) / span * bar.width
        half = theme.text_width(words) / 2
        if value not in limits and not reached + 0.08 < x - half < x + half + 0.08 < last:
            continue
        page.stroke([[x, bar.bottom], [x, bar.bottom + 0.025]], theme.QUIET, 0.5)
        page.text(x, bar.bottom + 0.13, words, align="center")
        reached = x + half
    page.y += 0.3
