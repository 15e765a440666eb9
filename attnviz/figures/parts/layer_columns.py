"""A table of maps with a column for every layer, in blocks as wide as the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from attnviz.figures.parts import theme
from attnviz.figures.parts.map_table import Cells, Content, Heading, draw_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.figures.parts.page import Sheet
    from attnviz.figures.parts.panels import Panel

_SLOT, _TALLEST, _GAP = 0.98, 1.3, 0.06


class Row(NamedTuple):
    """A row of the table: its name, and a panel with a text below it for every layer."""

    name: str
    panels: list[Panel]
    texts: list[str]


def draw_layer_columns(
    sheet: Sheet, rows: Sequence[Row], titles: Sequence[tuple[str, ...]], aspect: float
) -> None:
    """The rows, under the titles of the columns, each from long to short."""
    headings = [Heading((row.name,)) for row in rows]
    content = Content([row.panels for row in rows], [row.texts for row in rows])
    cells = _cells(sheet, headings, len(titles), aspect)
    draw_table(sheet, headings, [Heading(each) for each in titles], content, cells)
    sheet.skip(0.04)


def _cells(sheet: Sheet, rows: Sequence[Heading], columns: int, aspect: float) -> Cells:
    """Columns in even blocks, each as wide as a picture has to be to be recognised."""
    indent = max(theme.text_width(row.titles[0]) for row in rows) + 0.08
    room = sheet.width - indent + _GAP
    most = max(1, int(room / (_SLOT + _GAP)))
    blocks = -(-columns // most)
    # A single block of few columns does not grow beyond what the others have.
    across = max(-(-columns // blocks), min(most, 4))
    slot = room / across - _GAP
    width = min(slot, _TALLEST * aspect)
    across = -(-columns // blocks)
    return Cells(across, blocks, slot, width, width / aspect, indent, whole=True, lines=1)
