"""Many small maps in named rows and named columns.

Layers or queries down and heads across, or heads or layers down and checkpoints across.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from attnviz.figures.parts import theme
from attnviz.figures.parts.layout import MARGIN, Rect
from attnviz.figures.parts.panels import Edges, Panel, draw_panel, map_panel
from attnviz.figures.parts.scale import Limits, from_zero

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import DrawStyle, FloatArray
    from attnviz.figures.parts.page import Page, Sheet

OWN_SCALES = "each map from 0 to the value below it"
"""How a table states its scale when every map has its own."""
_GAP = 0.06
_SMALLEST = 0.44
_LARGEST, _LARGEST_FLOWING = 1.5, 1.15
_PARTS = 3
"""Most parts of a table that stand side by side."""
_APART = 0.2
_HEADER = 0.16
_BELOW = 0.125
_SWATCH = 0.075


@dataclass(frozen=True)
class Heading:
    """The name of a row or column, in wordings from long to short, and the colour it goes by."""

    titles: tuple[str, ...]
    swatch: str | None = None


class Content(NamedTuple):
    """The panels of a table (rows, columns), and a short text under every one, or None."""

    panels: list[list[Panel]]
    below: list[list[str]] | None


def content_of(
    attention: FloatArray,
    style: DrawStyle,
    shared: Limits | None,
    marks: Sequence[tuple[Edges, ...]] | None = None,
) -> Content:
    """Maps (R, C, gh, gw), on the shared scale or each from 0 to its highest value, told below.

    marks: the lines on all panels of a row.
    """
    highest = attention.max(axis=(2, 3)).tolist()
    panels = [
        [
            map_panel(("",), values, style, shared or from_zero(most), edges=edges)
            for values, most in zip(row, mosts, strict=True)
        ]
        for row, mosts, edges in zip(
            attention, highest, marks or [()] * len(attention), strict=True
        )
    ]
    return Content(panels, None if shared else [[theme.number(v) for v in row] for row in highest])


class Cells(NamedTuple):
    """Size of a grid in inches: columns in a block, blocks below each other, panels, indent.

    whole: the rows of a block are kept on one page.
    """

    columns: int
    blocks: int
    slot: float
    wide: float
    high: float
    indent: float
    whole: bool

    def width(self) -> float:
        """From the row names to the right edge of the last column."""
        return self.indent + self.columns * (self.slot + _GAP) - _GAP


def measure(
    width: float,
    rows: Sequence[Heading],
    columns: int,
    aspect: float,
    tallest: float,
    *,
    below: bool,
    page: float = 0.0,
) -> Cells:
    """How a grid fits into ``width`` inches; columns that do not fit go on in further blocks.

    tallest: inches that all rows of a block may take, as far as panels stay readable.
    below: whether a text stands under every panel. page: where rows would not stay readable, they
    are not made as small as possible but go on over pages that have room for so many inches.
    """
    indent = max(theme.text_width(row.titles[0]) for row in rows) + 0.08
    indent += max(_indent(row) for row in rows)
    room = width - indent
    smallest = max(_SMALLEST, min(0.3 * aspect, room))
    most = max(1, int((room + _GAP) / (smallest + _GAP)))
    blocks = -(-columns // most)
    across = -(-columns // blocks)
    slot = (room - (across - 1) * _GAP) / across
    high = min(slot / aspect, _LARGEST)
    beside = _GAP + (_BELOW if below else 0.0)
    fitting = tallest / len(rows) - beside
    whole = fitting >= min(high, _SMALLEST) or not page
    if whole:
        high = min(high, max(_SMALLEST, fitting))
    else:
        high = _over_pages(min(high, _LARGEST_FLOWING), beside, len(rows), tallest, page)
    wide = high * aspect
    return Cells(across, blocks, min(slot, max(wide, _SMALLEST)), wide, high, indent, whole)


def _over_pages(high: float, beside: float, rows: int, first: float, page: float) -> float:
    """The height of panels, ``high``, or down to a fifth less where that takes fewer pages.

    beside: what a row has besides its panel. first, page: the inches of the page that rows begin
    on and of every other.
    """

    def pages(height: float) -> int:
        step = height + beside
        return 1 + max(0, math.ceil((rows - first // step) / max(1, page // step)))

    # The number of rows on a page changes only where a whole number of them fills it.
    full = (inches / count - beside for inches in (first, page) for count in range(1, rows + 1))
    heights = [high, *(each - 1e-6 for each in full if 0.8 * high <= each < high)]
    return min(heights, key=lambda height: (pages(height), -height))


def draw_table(
    sheet: Sheet,
    rows: Sequence[Heading],
    columns: Sequence[Heading],
    content: Content,
    cells: Cells,
    edge: float = MARGIN,
) -> None:
    """The panels under the names of their columns and beside those of their rows.

    edge: where the names of the rows begin, in inches from the left.
    """
    panels, below = content
    step = cells.high + (_BELOW if below else 0.0) + _GAP
    for start in range(0, len(columns), cells.columns):
        chosen = range(start, min(start + cells.columns, len(columns)))
        sheet.skip(0.04)
        page = None
        whole = _HEADER + len(rows) * step
        if cells.whole and whole < sheet.limit - MARGIN:
            sheet.room(whole)
        for index, row in enumerate(rows):
            present = sheet.room(step if page else step + _HEADER)
            if present is not page:
                page = present
                _titles(page, [columns[k] for k in chosen], cells, edge)
            _row_name(page, row, edge, page.y + cells.high / 2 + 0.035)
            for place, k in enumerate(chosen):
                left = edge + cells.indent + place * (cells.slot + _GAP)
                box = Rect(left, page.y, cells.wide, cells.high)
                draw_panel(page, panels[index][k], box)
                if below:
                    page.text(left, box.bottom + 0.1, below[index][k], colour=theme.QUIET)
            page.y += step


def draw_heads(
    sheet: Sheet,
    rows: Sequence[Heading],
    heads: Sequence[int],
    attention: FloatArray,
    aspect: float,
    shared: Limits | None,
    marks: Sequence[tuple[Edges, ...]] | None = None,
) -> None:
    """The maps (R, H, gh, gw) of heads, heads across; on the rest of the page if they fit there.

    Where few heads leave room beside them, the rows go on to their right.
    marks: the lines on all panels of a row.
    """
    columns = [Heading((f"Head {head}", str(head)), theme.head_colour(head)) for head in heads]
    content = content_of(attention, sheet.style, shared, marks)
    rest = sheet.limit - sheet.pages[-1].y - _HEADER - (0.4 if shared else 0.1)

    def measured(parts: int) -> tuple[Cells, int, float]:
        """With the rows in so many parts side by side: the cells, rows a part, inches a part."""
        many = -(-len(rows) // parts)
        width = (sheet.width - (parts - 1) * _APART) / parts
        below = content.below is not None
        size = (width, rows[:many], len(columns), aspect, rest)
        cells = measure(*size, below=below, page=sheet.limit - MARGIN - _HEADER)
        return cells, many, width + _APART

    options = [measured(parts) for parts in range(1, min(len(rows), _PARTS) + 1)]
    fitting = [option for option in options if option[0].whole and option[0].blocks == 1]
    cells, many, across = max(fitting, key=lambda option: option[0].high, default=options[0])
    top, ends = sheet.pages[-1].y, []
    for index, start in enumerate(range(0, len(rows), many)):
        if index:
            sheet.pages[-1].y = top
        chosen = slice(start, start + many)
        part = Content(content.panels[chosen], content.below and content.below[chosen])
        draw_table(sheet, rows[chosen], columns, part, cells, MARGIN + index * across)
        ends.append(sheet.pages[-1].y)
    sheet.pages[-1].y = ends[0]  # the first part has the most rows


def _indent(heading: Heading) -> float:
    return _SWATCH + 0.04 if heading.swatch else 0.0


def _row_name(page: Page, row: Heading, left: float, base: float) -> None:
    if row.swatch:
        page.block(Rect(left, base - _SWATCH, _SWATCH, _SWATCH), row.swatch)
        left += _SWATCH + 0.04
    page.text(left, base, row.titles[0])


def _titles(page: Page, columns: Sequence[Heading], cells: Cells, edge: float) -> None:
    """The longest wording that fits above every column, else as much of the shortest as fits."""
    ranks = range(max(len(column.titles) for column in columns))
    for rank in ranks:
        named = [(column.titles[min(rank, len(column.titles) - 1)], column) for column in columns]
        widths = (theme.text_width(each) + _indent(column) for each, column in named)
        if max(widths) <= cells.slot:
            break
    for place, (each, column) in enumerate(named):
        left = edge + cells.indent + place * (cells.slot + _GAP)
        shown = theme.shortened(each, cells.slot - _indent(column))
        if column.swatch:
            page.block(Rect(left, page.y + 0.035, _SWATCH, _SWATCH), column.swatch)
            left += _SWATCH + 0.04
        page.text(left, page.y + 0.11, shown)
    page.y += _HEADER
