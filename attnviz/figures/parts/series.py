"""Curves over the layers of a model, each with its own stroke, and their legend."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from attnviz.figures.parts import theme
from attnviz.figures.parts.layout import MARGIN
from attnviz.figures.parts.plots import curve_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import FloatArray
    from attnviz.figures.parts.layout import Rect
    from attnviz.figures.parts.page import Page, Sheet


class Series(NamedTuple):
    """A curve: values (n,), its name in the legend, colour, and stroke."""

    name: str
    values: FloatArray
    colour: str
    width: float = 1.3
    dashed: bool = False


def series_plot(page: Page, rect: Rect, series: Sequence[Series], heading: str) -> None:
    """Curves over positions 0 to n - 1, on an axis from zero to the highest value."""
    count = len(series[0].values)
    highest = max(float(each.values.max()) for each in series)
    frame = curve_frame(page, rect, range(count), (0.0, highest), heading)
    for each in series:
        points = frame.points([float(index) for index in range(count)], each.values)
        page.stroke(points, each.colour, each.width, dashed=each.dashed)


def series_legend(sheet: Sheet, series: Sequence[Series]) -> None:
    """The strokes with their names, on as many rows as needed."""
    stroke = 0.2
    widest = max(theme.text_width(each.name) for each in series) + stroke + 0.2
    columns = max(1, min(len(series), int(sheet.width / widest)))
    for start in range(0, len(series), columns):
        page = sheet.room(theme.LINE_INCHES)
        for column, each in enumerate(series[start : start + columns]):
            left, base = MARGIN + column * widest, page.y + 0.1
            ends = [[left, base - 0.036], [left + stroke, base - 0.036]]
            page.stroke(ends, each.colour, each.width + 0.2, dashed=each.dashed)
            page.text(left + stroke + 0.05, base, each.name)
        page.y += theme.LINE_INCHES
