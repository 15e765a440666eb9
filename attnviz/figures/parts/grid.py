"""Maps in a grid: titled rows and columns, each row with the shape of its own picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from attnviz.figures.parts import theme
from attnviz.figures.parts.layout import MARGIN, Rect
from attnviz.figures.parts.panels import BAR_INCHES, Panel, draw_panel, slim_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.figures.parts.page import Page, Sheet
    from attnviz.figures.parts.scale import Limits

_GAP = 0.06
_LINE = 0.13
"""Width of the strip at the left in which a line of a row's title reads upwards."""
_HEADER = 0.16
_SMALLEST = 0.68
_SMALLEST_WITH_BAR = 0.92
_WIDEST = 3.3
_HIGHEST = 2.2
_HIGHEST_ALONE = 3.3
_BAR_MOST = 2.6


@dataclass(frozen=True)
class Column:
    """titles: wordings from long to short. limits: those of one colour bar below the column.

    Neighbours of one group share their limits, and have one bar below all of them.
    """

    titles: tuple[str, ...]
    limits: Limits | None = None
    group: str = ""


@dataclass(frozen=True)
class Row:
    """One panel a column, or None; title: its lines. aspect: width over height of the panels."""

    title: tuple[str, ...]
    aspect: float
    panels: tuple[Panel | None, ...]


def draw_grid(sheet: Sheet, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """All columns side by side, or as many as stay readable and the rest below, under the first.

    The first column is repeated there, since it says what is looked at.
    """
    bars = any(panel is not None and panel.limits for row in rows for panel in row.panels)
    smallest = _SMALLEST_WITH_BAR if bars else _SMALLEST
    others = range(1, len(columns))
    indent = 0.04 + _LINE * max(len(row.title) for row in rows)
    size, slot = _split(sheet.width - indent, smallest, len(others))
    highest = _HIGHEST if len(rows) > 1 else _HIGHEST_ALONE
    above = any(_longest(row) > min(slot / row.aspect, highest) for row in rows)
    if above:
        indent = 0.0
        size, slot = _split(sheet.width, smallest, len(others))
    heights = [min(slot / row.aspect, highest) for row in rows]
    slot = max(high * row.aspect for row, high in zip(rows, heights, strict=True))
    for start in range(0, len(others), size):
        places = (0, *others[start : start + size])
        lefts = [MARGIN + indent + place * (slot + _GAP) for place in range(len(places))]
        shown = [columns[k] for k in places]
        _draw_block(sheet, shown, rows, heights, places, lefts, slot, above=above)


def _split(room: float, smallest: float, others: int) -> tuple[int, float]:
    """How many columns stand beside the first, and the width of each, in inches."""
    most = max(2, int((room + _GAP) / (smallest + _GAP)))
    blocks = max(1, math.ceil(others / (most - 1)))
    size = max(1, math.ceil(others / blocks))
    return size, min((room - size * _GAP) / (size + 1), _WIDEST)


def _longest(row: Row) -> float:
    return max((theme.text_width(theme.printable(words)) for words in row.title), default=0.0)


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
    """Some of the columns: ``columns`` are theirs, ``chosen`` their places in a row.

    above: titles stand above their rows, where they do not fit beside them.
    """
    page: Page | None = None
    common = BAR_INCHES if any(column.limits for column in columns) else 0.0
    # A row that has none of these columns, such as heads of a model with fewer, is left out.
    shown = [
        (row, high, _step(row, high, above=above))
        for row, high in zip(rows, heights, strict=True)
        if any(row.panels[k] is not None for k in chosen[1:])
    ]
    whole = _HEADER + sum(step for _, _, step in shown) + common
    if whole < sheet.limit - MARGIN:
        sheet.room(whole)
    for row, high, step in shown:
        present = sheet.room(step + common + (0.0 if page else _HEADER))
        if present is not page:
            if page is not None:
                _bars(sheet, page, columns, lefts, slot)
            page = present
            _header(page, columns, lefts, slot)
        top = page.y + (_LINE if above else 0.0)
        _title(page, row, top, high, lefts[-1] + slot, above=above)
        for left, k in zip(lefts, chosen, strict=True):
            panel = row.panels[k]
            if panel is None:
                continue
            box = Rect(left, top, high * row.aspect, high)
            draw_panel(page, panel, box)
            if panel.limits:
                slim_bar(page, panel.limits, sheet.style.cmap, left, box.bottom, slot)
        page.y += step
    if page is not None:
        _bars(sheet, page, columns, lefts, slot)
        page.y += _GAP


def _step(row: Row, high: float, *, above: bool) -> float:
    """From a row to the next, in inches."""
    own = any(panel is not None and panel.limits for panel in row.panels)
    return high + _GAP + (BAR_INCHES if own else 0.0) + (_LINE if above else 0.0)


def _title(page: Page, row: Row, top: float, high: float, right: float, *, above: bool) -> None:
    if above:
        words = theme.shortened(theme.printable(" · ".join(row.title)), right - MARGIN)
        page.text(MARGIN, top - 0.035, words)
        return
    for line, words in enumerate(row.title, 1):
        x = MARGIN + line * _LINE - 0.02
        page.text(x, top + high / 2, theme.printable(words), align="center", turned=True)


def _header(page: Page, columns: Sequence[Column], lefts: Sequence[float], slot: float) -> None:
    for left, column in zip(lefts, columns, strict=True):
        titles = column.titles
        fits = (title for title in titles if theme.text_width(title, theme.TITLE_PT) <= slot)
        words = theme.shortened(next(fits, titles[-1]), slot, theme.TITLE_PT)
        page.text(left, page.y + 0.105, words, size=theme.TITLE_PT)
    page.y += _HEADER


def _bars(
    sheet: Sheet, page: Page, columns: Sequence[Column], lefts: Sequence[float], slot: float
) -> None:
    """The bars of columns, one a group."""
    page.y -= _GAP
    for _, members in groupby(zip(columns, lefts, strict=True), key=lambda each: each[0].group):
        group = list(members)
        (first, left), (_, last) = group[0], group[-1]
        if first.limits is not None:
            wide = min(last + slot - left, _BAR_MOST)
            slim_bar(page, first.limits, sheet.style.cmap, left, page.y, wide)
    page.y += BAR_INCHES if any(column.limits for column in columns) else 0.0
