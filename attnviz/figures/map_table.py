"""Maps in named rows and named columns: checkpoints across, heads or layers down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from attnviz.figures import style as ink
from attnviz.figures.layout import MARGIN, Rect
from attnviz.figures.panels import panel_image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.figures.page import Page, Sheet
    from attnviz.figures.panels import Panel

_GAP = 0.06
_SMALLEST = 0.44
_LARGEST = 1.5
_TALLEST, _TALLEST_NARROW = 5.6, 3.8
"""All rows of a block, in inches, so that what belongs to them still stands on their page."""
_NARROW = 5.0
_HEADER = 0.16
_BELOW = 0.125
_SWATCH = 0.075


@dataclass(frozen=True)
class Heading:
    """The name of a row or column, in wordings from long to short, and the colour it goes by."""

    titles: tuple[str, ...]
    swatch: str | None = None


class Cells(NamedTuple):
    """Size of a grid in inches: columns in a block, blocks below each other, panels, indent."""

    columns: int
    blocks: int
    slot: float
    wide: float
    high: float
    indent: float

    def width(self) -> float:
        """From the row names to the right edge of the last column."""
        return self.indent + self.columns * (self.slot + _GAP) - _GAP


def measure(width: float, rows: Sequence[Heading], columns: int, aspect: float) -> Cells:
    """How a grid fits into ``width`` inches; columns that do not fit go on in further blocks."""
    indent = max(ink.text_width(row.titles[0]) for row in rows) + 0.08
    indent += _SWATCH + 0.04 if any(row.swatch for row in rows) else 0.0
    room = width - indent
    smallest = max(_SMALLEST, min(0.3 * aspect, room))
    most = max(1, int((room + _GAP) / (smallest + _GAP)))
    blocks = -(-columns // most)
    across = -(-columns // blocks)
    tallest = _TALLEST_NARROW if width < _NARROW and blocks == 1 else _TALLEST
    highest = min(_LARGEST, max(_SMALLEST, tallest / len(rows) - _GAP))
    slot = (room - (across - 1) * _GAP) / across
    high = min(slot / aspect, highest)
    wide = high * aspect
    return Cells(across, blocks, min(slot, max(wide, _SMALLEST)), wide, high, indent)


def draw_table(
    sheet: Sheet,
    rows: Sequence[Heading],
    columns: Sequence[Heading],
    panels: Sequence[Sequence[Panel]],
    cells: Cells,
    below: Sequence[Sequence[str]] | None = None,
) -> None:
    """The panels (rows, columns) under the names of their columns and beside those of their rows.

    below: a short text under every panel, or None.
    """
    step = cells.high + (_BELOW if below else 0.0) + _GAP
    for start in range(0, len(columns), cells.columns):
        chosen = range(start, min(start + cells.columns, len(columns)))
        sheet.skip(0.04)
        page = None
        whole = _HEADER + len(rows) * step
        if whole < sheet.limit - MARGIN:
            sheet.room(whole)
        for index, row in enumerate(rows):
            present = sheet.room(step if page else step + _HEADER)
            if present is not page:
                page = present
                _titles(page, [columns[k] for k in chosen], cells)
            _row_name(page, row, page.y + cells.high / 2 + 0.035)
            for place, k in enumerate(chosen):
                left = MARGIN + cells.indent + place * (cells.slot + _GAP)
                box = Rect(left, page.y, cells.wide, cells.high)
                panel_image(page, panels[index][k], box)
                if below:
                    page.text(left, box.bottom + 0.1, below[index][k], colour=ink.QUIET)
            page.y += step


def _row_name(page: Page, row: Heading, base: float) -> None:
    left = MARGIN
    if row.swatch:
        page.block(Rect(left, base - _SWATCH, _SWATCH, _SWATCH), row.swatch)
        left += _SWATCH + 0.04
    page.text(left, base, row.titles[0])


def _titles(page: Page, columns: Sequence[Heading], cells: Cells) -> None:
    """The longest wording that fits above every column, else as much of the shortest as fits."""
    ranks = range(max(len(column.titles) for column in columns))
    for rank in ranks:
        words = [column.titles[min(rank, len(column.titles) - 1)] for column in columns]
        if all(ink.text_width(each) <= cells.slot for each in words):
            break
    for place, (column, each) in enumerate(zip(columns, words, strict=True)):
        left = MARGIN + cells.indent + place * (cells.slot + _GAP)
        shown = ink.shortened(each, cells.slot - (_SWATCH + 0.04 if column.swatch else 0))
        if column.swatch:
            page.block(Rect(left, page.y + 0.035, _SWATCH, _SWATCH), column.swatch)
            left += _SWATCH + 0.04
        page.text(left, page.y + 0.11, shown)
    page.y += _HEADER
