"""Many small maps in rows and columns: layers or queries down, heads across."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.figures import style as ink
from attnviz.figures.layout import MARGIN, Rect
from attnviz.figures.panels import Panel, map_panel, panel_image
from attnviz.figures.scale import Limits, from_zero

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import DrawStyle, FloatArray
    from attnviz.figures.page import Page, Sheet

_GAP = 0.05
_SMALLEST = 0.44
_HEADER = 0.16
_BELOW = 0.125
MULTIPLES_WORDS = "each map from 0 to the value below it"
"""How they state its scale when every map has its own."""


@dataclass(frozen=True)
class Row:
    """One row: its label and one map a head; marks are those of ``Panel``."""

    label: str
    panels: tuple[Panel, ...]


def multiples_row(
    label: str, attention: FloatArray, style: DrawStyle, shared: Limits | None
) -> Row:
    """A row of maps (H, gh, gw)."""
    panels = (
        map_panel(("",), values, style, shared or from_zero(float(values.max())))
        for values in attention
    )
    return Row(label, tuple(panels))


def draw_multiples(
    sheet: Sheet,
    rows: Sequence[Row],
    heads: Sequence[int],
    aspect: float,
    below: Sequence[Sequence[str]] | None,
) -> None:
    """Rows of maps under the names of the heads; as many heads side by side as stay readable.

    below: a short text under every map, or None.
    """
    indent = max(ink.text_width(row.label) for row in rows) + 0.08
    room = sheet.width - indent
    smallest = max(_SMALLEST, min(0.3 * aspect, room))
    most = max(1, int((room + _GAP) / (smallest + _GAP)))
    blocks = -(-len(heads) // most)
    columns = -(-len(heads) // blocks)
    slot = min((room - (columns - 1) * _GAP) / columns, 1.3)
    high = min(slot / aspect, 1.15)
    wide = high * aspect
    step = high + (_BELOW if below else 0.0) + _GAP
    for start in range(0, len(heads), columns):
        chosen = range(start, min(start + columns, len(heads)))
        sheet.skip(0.04)
        page = None
        for index, row in enumerate(rows):
            present = sheet.room(step if page else step + _HEADER)
            if present is not page:
                page = present
                _header(page, [heads[k] for k in chosen], MARGIN + indent, slot)
            page.text(MARGIN, page.y + high / 2 + 0.035, row.label)
            for place, k in enumerate(chosen):
                left = MARGIN + indent + place * (slot + _GAP)
                box = Rect(left, page.y, wide, high)
                panel_image(page, row.panels[k], box)
                if below:
                    page.text(left, box.bottom + 0.1, below[index][k], colour=ink.QUIET)
            page.y += step


def _header(page: Page, heads: Sequence[int], left: float, slot: float) -> None:
    short = any(ink.text_width(f"Head {head}") + 0.11 > slot for head in heads)
    for place, head in enumerate(heads):
        x = left + place * (slot + _GAP)
        page.block(Rect(x, page.y + 0.035, 0.075, 0.075), ink.head_colour(head))
        page.text(x + 0.11, page.y + 0.11, str(head) if short else f"Head {head}")
    page.y += _HEADER
