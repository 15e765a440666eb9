"""The image and, beside or below it, plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.figures.parts import theme
from attnviz.figures.parts.layout import GAP, MARGIN, Rect
from attnviz.figures.parts.panels import TITLE_INCHES, draw_panel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnviz.figures.parts.page import Page, Sheet
    from attnviz.figures.parts.panels import Panel

    Plot = Callable[[Page, Rect], None]

_LEAST = 1.35
_MOST = 1.9
_WIDE = 1.7
_LOW = 0.98
"""Height of a plot of a stack in inches, with heading and ticks."""


def overview(
    sheet: Sheet,
    panel: Panel,
    aspect: float,
    plots: Sequence[Plot],
    *,
    below: float = 0.2,
    compact: bool = False,
) -> None:
    """A panel under its title, with plots to its right, or below it on a narrow page.

    below: inches that are kept free on the page for what belongs under the plots. compact: on a
    narrow page too the plots are to the right of the panel, low ones above each other.
    """
    height = min(max(sheet.width / 3.4 / aspect, _LEAST), _MOST)
    width = min(height * aspect, sheet.width / 3)
    beside = sheet.width - max(width, 1.0) > (_WIDE + 2 * GAP) * len(plots)
    if compact and not beside:
        _stacked(sheet, panel, aspect, plots, below)
        return
    if not beside:
        height = _LEAST
        width = min(height * aspect, sheet.width)
    step = height + TITLE_INCHES + 0.02
    page = sheet.room(step + (0.0 if beside else len(plots) * (step + 0.06)) + below)
    image_at(page, panel, Rect(MARGIN, page.y, width, width / aspect))
    if beside:
        left = MARGIN + max(width, 1.0) + 2 * GAP
        slot = (sheet.width + MARGIN - left - (len(plots) - 1) * 2 * GAP) / len(plots)
        for index, plot in enumerate(plots):
            plot(page, Rect(left + index * (slot + 2 * GAP), page.y, slot, step))
        page.y += step + 0.06
    else:
        page.y += TITLE_INCHES + width / aspect + 0.06
        for plot in plots:
            plot(page, Rect(MARGIN, page.y, sheet.width, step))
            page.y += step + 0.06


def _stacked(
    sheet: Sheet, panel: Panel, aspect: float, plots: Sequence[Plot], below: float
) -> None:
    """The panel, and to its right the plots above each other."""
    width = min(sheet.width / 3, _MOST * aspect)
    step = max(_LOW, (width / aspect + TITLE_INCHES) / len(plots))
    page = sheet.room(len(plots) * (step + 0.06) + below)
    image_at(page, panel, Rect(MARGIN, page.y, width, width / aspect))
    left = MARGIN + max(width, sheet.width / 4) + 2 * GAP
    for plot in plots:
        plot(page, Rect(left, page.y, sheet.width + MARGIN - left, step))
        page.y += step + 0.06


def image_at(page: Page, panel: Panel, box: Rect) -> None:
    """A panel with its title at the top left of ``box`` and its pixels below the title."""
    title = theme.shorten(panel.titles[0], max(box.width, 1.0), theme.TITLE_PT)
    page.text(box.left, box.top + TITLE_INCHES - 0.045, title, size=theme.TITLE_PT)
    draw_panel(page, panel, box._replace(top=box.top + TITLE_INCHES))
