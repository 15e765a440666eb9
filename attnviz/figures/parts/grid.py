"""Maps in a grid of titled rows and columns; each row has the shape of its own image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from attnviz.figures.parts import theme
from attnviz.figures.parts.colour_bars import BAR_INCHES, ColourScale, slim_bar
from attnviz.figures.parts.layout import MARGIN, Rect
from attnviz.figures.parts.panels import Panel, draw_panel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.figures.parts.page import Page, Sheet
    from attnviz.figures.parts.scale import Limits

_GAP = 0.06
_LINE = 0.13
"""Width of one line of a row's title, which reads upwards at the left."""
_HEADER = 0.16
_SMALLEST = 0.68
_SMALLEST_WITH_BAR = 0.92
_WIDEST = 3.3
_TALLEST = 2.2
_TALLEST_ALONE = 3.3
_BAR_WIDEST = 2.6


@dataclass(frozen=True)
class Column:
    """A column of maps.

    titles: from long to short. limits: of a colour bar below the column. group: adjacent columns of
    one group share their limits and one bar below all of them.
    """

    titles: tuple[str, ...]
    limits: Limits | None = None
    group: str = ""


@dataclass(frozen=True)
class Row:
    """A row of maps.

    title: its lines. aspect: width / height of the panels. panels: one per column, or None.
    """

    title: tuple[str, ...]
    aspect: float
    panels: tuple[Panel | None, ...]


def draw_grid(sheet: Sheet, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """All columns side by side, or as many as remain readable and the others in blocks below.

    Every block begins with the first column, the images.
    """
    bars = any(panel is not None and panel.limits for row in rows for panel in row.panels)
    smallest = _SMALLEST_WITH_BAR if bars else _SMALLEST
    others = range(1, len(columns))
    indent = 0.04 + _LINE * max(len(row.title) for row in rows)
    size, slot = _split(sheet.width - indent, smallest, len(others))
    tallest = _TALLEST if len(rows) > 1 else _TALLEST_ALONE
    above = any(_longest(row) > min(slot / row.aspect, tallest) for row in rows)
    if above:
        indent = 0.0
        size, slot = _split(sheet.width, smallest, len(others))
    heights = [min(slot / row.aspect, tallest) for row in rows]
    slot = max(height * row.aspect for row, height in zip(rows, heights, strict=True))
    for start in range(0, len(others), size):
        chosen = (0, *others[start : start + size])
        lefts = [MARGIN + indent + index * (slot + _GAP) for index in range(len(chosen))]
        titled = [columns[k] for k in chosen]
        _draw_block(sheet, titled, rows, heights, chosen, lefts, slot, above=above)


def _split(room: float, smallest: float, others: int) -> tuple[int, float]:
    """The number of columns beside the first, and the width of each in inches."""
    most = max(2, int((room + _GAP) / (smallest + _GAP)))
    blocks = max(1, math.ceil(others / (most - 1)))
    size = max(1, math.ceil(others / blocks))
    return size, min((room - size * _GAP) / (size + 1), _WIDEST)


def _longest(row: Row) -> float:
    return max((theme.text_width(theme.printable(line)) for line in row.title), default=0.0)


def _draw_block(
    sheet: Sheet,
    columns: Sequence[Column],
    rows: Sequence[Row],
    heights: Sequence[float],
    chosen: Sequence[int],
    lefts: Sequence[float],
    slot: float,
    *,
    above: bool,
) -> None:
    """Some of the columns; ``chosen`` are their indices in a row.

    above: titles are above their rows, because they do not fit beside them.
    """
    page: Page | None = None
    common = BAR_INCHES if any(column.limits for column in columns) else 0.0
    # A row without any of these columns is left out, such as one of a model with fewer heads.
    filled = [
        (row, height, _step(row, height, above=above))
        for row, height in zip(rows, heights, strict=True)
        if any(row.panels[k] is not None for k in chosen[1:])
    ]
    total = _HEADER + sum(step for _, _, step in filled) + common
    if total < sheet.limit - MARGIN:
        sheet.room(total)
    for row, height, step in filled:
        current = sheet.room(step + common + (0.0 if page else _HEADER))
        if current is not page:
            if page is not None:
                _bars(sheet, page, columns, lefts, slot)
            page = current
            _header(page, columns, lefts, slot)
        top = page.y + (_LINE if above else 0.0)
        _title(page, row, top, height, lefts[-1] + slot, above=above)
        for left, k in zip(lefts, chosen, strict=True):
            panel = row.panels[k]
            if panel is None:
                continue
            box = Rect(left, top, height * row.aspect, height)
            draw_panel(page, panel, box)
            if panel.limits:
                scale = ColourScale(panel.limits, sheet.style.cmap)
                slim_bar(page, scale, left, box.bottom, slot)
        page.y += step
    if page is not None:
        _bars(sheet, page, columns, lefts, slot)
        page.y += _GAP


def _step(row: Row, height: float, *, above: bool) -> float:
    """Inches from a row to the next."""
    own = any(panel is not None and panel.limits for panel in row.panels)
    return height + _GAP + (BAR_INCHES if own else 0.0) + (_LINE if above else 0.0)


def _title(page: Page, row: Row, top: float, height: float, right: float, *, above: bool) -> None:
    if above:
        title = theme.shorten(theme.printable(" · ".join(row.title)), right - MARGIN)
        page.text(MARGIN, top - 0.035, title)
        return
    for number, line in enumerate(row.title, 1):
        x = MARGIN + number * _LINE - 0.02
        page.text(x, top + height / 2, theme.printable(line), align="center", rotated=True)


def _header(page: Page, columns: Sequence[Column], lefts: Sequence[float], slot: float) -> None:
    for left, column in zip(lefts, columns, strict=True):
        titles = column.titles
        fits = (title for title in titles if theme.text_width(title, theme.TITLE_PT) <= slot)
        title = theme.shorten(next(fits, titles[-1]), slot, theme.TITLE_PT)
        page.text(left, page.y + 0.105, title, size=theme.TITLE_PT)
    page.y += _HEADER


def _bars(
    sheet: Sheet, page: Page, columns: Sequence[Column], lefts: Sequence[float], slot: float
) -> None:
    """The colour bars below the columns, one per group."""
    page.y -= _GAP
    for _, members in groupby(zip(columns, lefts, strict=True), key=lambda each: each[0].group):
        group = list(members)
        (first, left), (_, last) = group[0], group[-1]
        if first.limits is not None:
            width = min(last + slot - left, _BAR_WIDEST)
            scale = ColourScale(first.limits, sheet.style.cmap)
            slim_bar(page, scale, left, page.y, width)
    page.y += BAR_INCHES if any(column.limits for column in columns) else 0.0
