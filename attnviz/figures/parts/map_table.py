"""A table of small maps with named rows and columns.

Rows are layers or queries and columns heads, or rows are heads or layers and columns checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from attnviz.figures.parts import theme
from attnviz.figures.parts.colour_bars import BAR_INCHES, SHARED_BAR_INCHES
from attnviz.figures.parts.layout import MARGIN, Rect
from attnviz.figures.parts.panels import Edges, Panel, draw_panel, map_panel
from attnviz.figures.parts.scale import Limits, from_zero

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import DrawStyle, FloatArray
    from attnviz.figures.parts.page import Page, Sheet

OWN_SCALES = "each map from 0 to the number next to it"
"""The colour scale, as the foot states it, if every map has its own."""
_GAP = 0.06
_SMALLEST = 0.44
_SMALLEST_OF_HEADS = 0.4, 0.28
"""Minimum width and height of panels in a table of heads, where one page is worth small maps."""
_TINY = 0.15, 0.1
"""The same where nothing larger fits on the page, but these do."""
_LARGEST, _LARGEST_FLOWING = 1.5, 1.15
_PARTS = 3
"""Maximum number of parts of a table side by side."""
_PART_GAP = 0.2
_HEADER = 0.16
_BELOW, _LINE = 0.125, 0.105
"""Height of a line of texts below panels, and of each further one."""
_SWATCH = 0.075


@dataclass(frozen=True)
class Heading:
    """The name of a row or column, from long to short, and its colour if it has one."""

    titles: tuple[str, ...]
    swatch: str | None = None


class Content(NamedTuple):
    """The panels of a table (rows, columns) and a short text for each of them, if any."""

    panels: list[list[Panel]]
    texts: list[list[str]] | None

    @property
    def text_width(self) -> float:
        """The width of the longest text in inches; 0 without texts."""
        return max((theme.text_width(text) for row in self.texts or () for text in row), default=0)


def content_of(
    attention: FloatArray,
    style: DrawStyle,
    shared: Limits | None,
    marks: Sequence[tuple[Edges, ...]] | None = None,
) -> Content:
    """Maps (R, C, gh, gw) on the shared scale, or each from 0 to its maximum, written next to it.

    marks: lines on all panels of a row.
    """
    highest = attention.max(axis=(2, 3)).tolist()
    limits = [[shared or from_zero(most) for most in row] for row in highest]
    panels = [
        [
            map_panel(("",), values, style, each, edges=edges)
            for values, each in zip(row, scales, strict=True)
        ]
        for row, scales, edges in zip(
            attention, limits, marks or [()] * len(attention), strict=True
        )
    ]
    return Content(
        panels, None if shared else [[theme.number(v.high) for v in row] for row in limits]
    )


class Cells(NamedTuple):
    """The layout of a table: columns per block, number of blocks, sizes of cells in inches.

    whole: the rows of a block stay on one page. beside: texts are beside panels, not below them.
    lines: on which the texts below the panels of a row stand, one after the other, so that they may
    be wider than a panel; 0 without texts below.
    """

    columns: int
    blocks: int
    slot: float
    panel_width: float
    panel_height: float
    indent: float
    whole: bool
    beside: bool = False
    lines: int = 0

    def width(self) -> float:
        """From the start of the row names to the right edge of the last column."""
        return self.indent + self.columns * (self.slot + _GAP) - _GAP


def fit_grid(
    width: float,
    rows: Sequence[Heading],
    columns: int,
    aspect: float,
    tallest: float,
    *,
    below: float,
    page: float = 0.0,
    beside: float = 0.0,
    tiny: bool = False,
) -> Cells:
    """Fit a table into ``width`` inches; columns that do not fit continue in further blocks.

    tallest: height in inches for all rows of a block, as far as panels remain readable.
    below, beside: width of a text below or beside each panel; 0 for none. page: the height of a
    page in inches, of a table whose rows may continue on further pages; 0 if they may not. Then
    panels are smaller before there is a second page. tiny: see ``_TINY``.
    """
    narrowest, lowest = _SMALLEST_OF_HEADS if page else (_SMALLEST, _SMALLEST)
    if tiny:
        narrowest, lowest = _TINY
    indent = max(theme.text_width(row.titles[0]) for row in rows) + 0.08
    indent += max(_indent(row) for row in rows)
    room = width - indent
    least = lowest if page else 0.3
    smallest = max(narrowest, min(least * aspect, room)) + beside
    most = max(1, int((room + _GAP) / (smallest + _GAP)))
    blocks = -(-columns // most)
    across = -(-columns // blocks)
    slot = (room - (across - 1) * _GAP) / across
    height = min((slot - beside) / aspect, _LARGEST)
    lines = math.ceil((below + _GAP) / (slot + _GAP)) if below and tiny else int(below > 0)
    between = _GAP + _text_height(lines)
    fitting = tallest / len(rows) - between
    whole = fitting >= min(height, lowest) or not page
    if whole:
        height = min(height, max(lowest, fitting))
    else:
        height = _over_pages(min(height, _LARGEST_FLOWING), between, len(rows), tallest, page)
    panel = height * aspect
    slot = min(slot, max(panel, narrowest) + beside)
    return Cells(across, blocks, slot, panel, height, indent, whole, beside > 0, lines)


def _over_pages(height: float, beside: float, rows: int, first: float, page: float) -> float:
    """The height of panels: ``height``, or up to a fifth less if that saves a page.

    beside: the rest of a row's height. first, page: the height for rows on the first page and on
    every other.
    """

    def pages(panel: float) -> int:
        step = panel + beside
        return 1 + max(0, math.ceil((rows - first // step) / max(1, page // step)))

    # The number of rows on a page changes only where a whole number of them fills it.
    full = (inches / count - beside for inches in (first, page) for count in range(1, rows + 1))
    heights = [height, *(each - 1e-6 for each in full if 0.8 * height <= each < height)]
    return min(heights, key=lambda panel: (pages(panel), -panel))


def _text_below(page: Page, text: str, box: Rect, column: int, lines: int) -> None:
    """A text below a panel: at its left edge; where texts stand on several lines, centred."""
    base = box.bottom + 0.1 + column % lines * _LINE
    if lines == 1:
        page.text(box.left, base, text, colour=theme.QUIET)
        return
    half = theme.text_width(text) / 2
    middle = min(box.left + box.width / 2, page.width - half)
    page.text(middle, base, text, colour=theme.QUIET, align="center")


def _text_height(lines: int) -> float:
    return _BELOW + (lines - 1) * _LINE if lines else 0.0


def draw_table(
    sheet: Sheet,
    rows: Sequence[Heading],
    columns: Sequence[Heading],
    content: Content,
    cells: Cells,
    edge: float = MARGIN,
) -> None:
    """The panels with the names of columns above and of rows beside them.

    edge: the left edge of the row names in inches.
    """
    panels, texts = content
    step = cells.panel_height + _text_height(cells.lines) + _GAP
    for start in range(0, len(columns), cells.columns):
        chosen = range(start, min(start + cells.columns, len(columns)))
        sheet.skip(0.04)
        page = None
        total = _HEADER + len(rows) * step
        if cells.whole and total < sheet.limit - MARGIN:
            sheet.room(total)
        for index, row in enumerate(rows):
            current = sheet.room(step if page else step + _HEADER)
            if current is not page:
                page = current
                _titles(page, [columns[k] for k in chosen], cells, edge)
            _row_name(page, row, edge, page.y + cells.panel_height / 2 + 0.035)
            for column, k in enumerate(chosen):
                left = edge + cells.indent + column * (cells.slot + _GAP)
                box = Rect(left, page.y, cells.panel_width, cells.panel_height)
                draw_panel(page, panels[index][k], box)
                if texts and cells.beside:
                    page.text(
                        box.right + 0.03, box.bottom - 0.01, texts[index][k], colour=theme.QUIET
                    )
                elif texts:
                    _text_below(page, texts[index][k], box, column, cells.lines)
            page.y += step


def draw_head_table(
    sheet: Sheet,
    rows: Sequence[Heading],
    heads: Sequence[int],
    attention: FloatArray,
    aspect: float,
    shared: Limits | None,
    marks: Sequence[tuple[Edges, ...]] | None = None,
) -> None:
    """Maps (R, H, gh, gw), one column per head, on the rest of the page if they fit there.

    If few heads leave room beside them, the rows continue to their right, or the texts are beside
    the maps, whichever makes the maps larger. marks: lines on all panels of a row.
    """
    columns = [Heading((f"Head {head}", str(head)), theme.head_colour(head)) for head in heads]
    content = content_of(attention, sheet.style, shared, marks)
    cells, per_part, across = _fit_heads(sheet, rows, len(columns), content, aspect, shared)
    top, ends = sheet.pages[-1].y, []
    for index, start in enumerate(range(0, len(rows), per_part)):
        if index:
            sheet.pages[-1].y = top
        chosen = slice(start, start + per_part)
        part = Content(content.panels[chosen], content.texts and content.texts[chosen])
        draw_table(sheet, rows[chosen], columns, part, cells, MARGIN + index * across)
        ends.append(sheet.pages[-1].y)
    sheet.pages[-1].y = ends[0]  # the first part has the most rows


def _fit_heads(
    sheet: Sheet,
    rows: Sequence[Heading],
    columns: int,
    content: Content,
    aspect: float,
    shared: Limits | None,
) -> tuple[Cells, int, float]:
    """The layout with the largest maps: its cells, rows per part, and inches per part."""
    bar = SHARED_BAR_INCHES if shared else BAR_INCHES
    rest = sheet.limit - sheet.pages[-1].y - _HEADER - bar - 0.1

    def in_parts(
        parts: int, *, beside: bool = False, tiny: bool = False
    ) -> tuple[Cells, int, float]:
        """The layout with the rows in ``parts`` side by side, rows per part, inches per part."""
        per_part = -(-len(rows) // parts)
        width = (sheet.width - (parts - 1) * _PART_GAP) / parts
        cells = fit_grid(
            width,
            rows[:per_part],
            columns,
            aspect,
            rest,
            below=0.0 if beside else content.text_width,
            page=sheet.limit - MARGIN - _HEADER,
            beside=content.text_width + 0.05 if beside else 0.0,
            tiny=tiny,
        )
        return cells, per_part, width + _PART_GAP

    options = [in_parts(parts) for parts in range(1, min(len(rows), _PARTS) + 1)]
    if content.texts:
        options.append(in_parts(1, beside=True))
    fitting = _on_one_page(options) or _on_one_page([in_parts(1, tiny=True)])
    return max(fitting, key=lambda option: option[0].panel_height, default=options[0])


def _on_one_page(options: Sequence[tuple[Cells, int, float]]) -> list[tuple[Cells, int, float]]:
    return [option for option in options if option[0].whole and option[0].blocks == 1]


def _indent(heading: Heading) -> float:
    return _SWATCH + 0.04 if heading.swatch else 0.0


def _row_name(page: Page, row: Heading, left: float, base: float) -> None:
    if row.swatch:
        page.block(Rect(left, base - _SWATCH, _SWATCH, _SWATCH), row.swatch)
        left += _SWATCH + 0.04
    page.text(left, base, row.titles[0])


def _titles(page: Page, columns: Sequence[Heading], cells: Cells, edge: float) -> None:
    """The longest titles that fit above all columns, or the shortest, cut to fit.

    Where the shortest do not fit beside their colours, they stand alone.
    """
    ranks = range(max(len(column.titles) for column in columns))
    for rank, coloured in (*((rank, True) for rank in ranks), (ranks[-1], False)):
        titled = [(column.titles[min(rank, len(column.titles) - 1)], column) for column in columns]
        indents = [_indent(column) if coloured else 0.0 for column in columns]
        widths = (theme.text_width(each) for each, _ in titled)
        if max(map(sum, zip(widths, indents, strict=True))) <= cells.slot:
            break
    for index, ((each, column), indent) in enumerate(zip(titled, indents, strict=True)):
        left = edge + cells.indent + index * (cells.slot + _GAP)
        title = theme.shorten(each, cells.slot - indent)
        if column.swatch and coloured:
            page.block(Rect(left, page.y + 0.035, _SWATCH, _SWATCH), column.swatch)
        page.text(left + indent, page.y + 0.11, title)
    page.y += _HEADER
