"""Curves over the layers of a model, each with its own stroke, and their legend."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from attnviz.figures.parts import theme
from attnviz.figures.parts.layout import Rect
from attnviz.figures.parts.plots import curve_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import FloatArray
    from attnviz.figures.parts.page import Page

_STROKE = 0.2
_GAP = 0.06


class Series(NamedTuple):
    """A curve: values (n,), its name in the legend, colour, and stroke."""

    name: str
    values: FloatArray
    colour: str
    width: float = 1.3
    dashed: bool = False


def series_plot(page: Page, rect: Rect, series: Sequence[Series], heading: str) -> None:
    """Curves over positions 0 to n - 1, on an axis from zero to the highest value.

    ``legend_height`` of the height of ``rect``, at its bottom, is the legend's.
    """
    below = legend_height(series, rect.width)
    plot = rect._replace(height=rect.height - below)
    _legend(page, rect._replace(top=plot.bottom, height=below), series)
    count = len(series[0].values)
    highest = max(float(each.values.max()) for each in series)
    frame = curve_frame(page, plot, range(count), (0.0, highest), heading)
    for each in series:
        points = frame.points([float(index) for index in range(count)], each.values)
        page.stroke(points, each.colour, each.width, dashed=each.dashed)


def legend_height(series: Sequence[Series], width: float) -> float:
    """Height of the legend in inches, as ``series_plot`` draws it in this width."""
    return -(-len(series) // _columns(series, width)) * theme.LINE_INCHES + _GAP


def _columns(series: Sequence[Series], width: float) -> int:
    return max(1, min(len(series), int(width / _entry(series))))


def _entry(series: Sequence[Series]) -> float:
    return max(theme.text_width(each.name) for each in series) + _STROKE + 0.16


def _legend(page: Page, rect: Rect, series: Sequence[Series]) -> None:
    """The strokes with their names, in columns."""
    columns, entry = _columns(series, rect.width), _entry(series)
    for number, each in enumerate(series):
        row, column = divmod(number, columns)
        left = rect.left + column * entry
        base = rect.top + _GAP + row * theme.LINE_INCHES + 0.1
        ends = [[left, base - 0.036], [left + _STROKE, base - 0.036]]
        page.stroke(ends, each.colour, each.width + 0.2, dashed=each.dashed)
        page.text(left + _STROKE + 0.05, base, each.name)
