"""A table of numbers: names at the left, with the colour of their lines, numbers right-aligned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.figures.parts import theme
from attnviz.figures.parts.layout import MARGIN, Rect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.figures.parts.page import Page, Sheet

_SWATCH = 0.16
_GAP = 0.12
_WIDEST = 5.0


@dataclass(frozen=True)
class TextRow:
    """One row. colour: of a short line before the name; None without. cells: "" for none."""

    name: str
    cells: tuple[str, ...]
    colour: str | None = None


def decimals_of(values: Sequence[float | None]) -> int:
    """Decimals of a column of numbers around 1: three, or up to five to tell them apart."""
    numbers = [value for value in values if value is not None]
    spread = max(numbers, default=0.0) - min(numbers, default=0.0)
    return 3 if spread >= 0.01 or not spread else 4 if spread >= 0.001 else 5


def text_table(sheet: Sheet, columns: Sequence[tuple[str, ...]], rows: Sequence[TextRow]) -> None:
    """The rows under the titles of their columns, as wide as the sheet, on as many pages as needed.

    columns: titles from long to short; all use the longest that fits everywhere.
    """
    name = max(theme.text_width(row.name) for row in rows) + _SWATCH + 0.05
    numbers = max(theme.text_width(cell) for row in rows for cell in row.cells)
    room = min(sheet.width, _WIDEST) - name
    slot = room / len(columns)
    ranks = range(max(map(len, columns)))
    wordings = [[titles[min(rank, len(titles) - 1)] for titles in columns] for rank in ranks]
    fitting = (w for w in wordings if max(map(theme.text_width, w)) <= slot - _GAP)
    titles = next(fitting, wordings[-1])
    slot = min(slot, max(numbers, *map(theme.text_width, titles)) + 2.5 * _GAP)
    page: Page | None = None
    for row in rows:
        current = sheet.room(theme.LINE_INCHES * (1 if page else 2) + 0.05)
        if current is not page:
            page = current
            _line(page, "", titles, name, slot)
            right = MARGIN + name + len(columns) * slot
            page.block(Rect(MARGIN, page.y + 0.005, right - MARGIN, 0.006), theme.INK)
            page.y += 0.02
        if row.colour:
            middle = page.y + 0.1 - 0.036
            page.stroke(
                [[MARGIN + 0.015, middle], [MARGIN + _SWATCH - 0.045, middle]], row.colour, 1.6
            )
        _line(page, row.name, row.cells, name, slot)


def _line(page: Page, name: str, cells: Sequence[str], indent: float, slot: float) -> None:
    base = page.y + 0.1
    page.text(MARGIN + _SWATCH, base, name)
    for column, cell in enumerate(cells, 1):
        page.text(MARGIN + indent + column * slot, base, cell, align="right")
    page.y += theme.LINE_INCHES
