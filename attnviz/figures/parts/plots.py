"""Bars and lines, drawn straight onto a page."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.figures.parts import theme
from attnviz.figures.parts.held import hold
from attnviz.figures.parts.layout import MARGIN, Rect, tick_text, ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from attnviz.domain import FloatArray
    from attnviz.figures.parts.page import Page, Sheet
    from attnviz.figures.parts.token_axis import TokenAxis

HEADING = 0.2
FOOTING = 0.17
_BAR_LEAST = 0.13
"""Minimum width, in inches, of one bar and the number of its head."""
_TURN_BELOW = 0.29
"""Bars closer than this, in inches, have rotated values."""


class Frame(NamedTuple):
    """Data ranges on a rectangle of the page."""

    box: Rect
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, x: float) -> float:
        """Inches from the left of the page."""
        return self.box.left + (x - self.x[0]) / (self.x[1] - self.x[0]) * self.box.width

    def down(self, y: float) -> float:
        """Inches from the top of the page."""
        return self.box.bottom - (y - self.y[0]) / (self.y[1] - self.y[0]) * self.box.height

    def points(self, x: Sequence[float], y: FloatArray) -> NDArray[np.float64]:
        """Inches, (n, 2)."""
        return np.array(
            [[self.across(a), self.down(float(b))] for a, b in zip(x, y, strict=True)], float
        )


def framed(
    page: Page,
    rect: Rect,
    x: tuple[float, float],
    y: tuple[float, float],
    heading: str,
    marks: Sequence[tuple[float, str]] | None = None,
) -> Frame:
    """Heading, value axis with thin rules, and baseline; returns the frame for the data.

    marks: values of the axis with their labels; None for round numbers.
    """
    if marks is None:
        most = max(2, int((rect.height - HEADING - FOOTING) / 0.16))
        values = [v for v in ticks(*y, most=most) if y[0] <= v <= y[1]]
        labels = tick_text(values)
    else:
        values, labels = [value for value, _ in marks], [label for _, label in marks]
    left = rect.left + max((theme.text_width(label) for label in labels), default=0.0) + 0.06
    box = Rect(left, rect.top + HEADING, rect.right - left, rect.height - HEADING - FOOTING)
    frame = Frame(box, x, y)
    page.text(rect.left, rect.top + 0.1, heading, size=theme.TITLE_PT)
    for value, label in zip(values, labels, strict=True):
        level = frame.down(value)
        page.text(left - 0.05, level + 0.035, label, align="right", colour=theme.QUIET)
        # A shape, not a stroke, so that bars cover it.
        page.block(Rect(left, level - 0.003, rect.right - left, 0.006), theme.RULE)
    page.stroke([[left, box.bottom], [rect.right, box.bottom]], theme.INK, 0.7)
    return frame


def limit_line(page: Page, frame: Frame, value: float, label: str, heading_right: float) -> None:
    """A dashed line at a bound, with a label above its right end if the heading leaves room."""
    level = frame.down(value)
    page.stroke([[frame.box.left, level], [frame.box.right, level]], theme.INK, 0.7, dashed=True)
    if frame.box.right - theme.text_width(label) > heading_right + 0.08:
        page.text(frame.box.right, level - 0.03, label, align="right")


def entropy_bars(
    sheet: Sheet, entropy: FloatArray, heads: Sequence[int], tokens: int, of: str = ""
) -> None:
    """The entropy of every head from zero, with its value, and the uniform limit ln N as a line.

    Heads that do not fit side by side continue in further rows. of: what the heading adds.
    """
    bars = list(zip(heads, entropy.tolist(), strict=True))
    most = max(1, int((sheet.width - 0.15) / _BAR_LEAST))
    many = math.ceil(len(bars) / math.ceil(len(bars) / most))
    for start in range(0, len(bars), many):
        _bar_row(sheet, bars[start : start + many], many, tokens, of)


def _bar_row(
    sheet: Sheet, bars: Sequence[tuple[int, float]], slots: int, tokens: int, of: str
) -> None:
    height = 1.2
    page = sheet.room(height)
    limit = math.log(tokens) if tokens > 1 else 1.0
    heading = f"Entropy H of each head{of}, nats"
    rect = Rect(MARGIN, page.y, sheet.width, height)
    frame = framed(page, rect, (0.0, float(slots)), (0.0, limit), heading)
    slot = frame.box.width / slots
    width = min(0.74 * slot, 0.55)
    rotated = slot < _TURN_BELOW
    for index, (head, value) in enumerate(bars):
        centre, top = frame.across(index + 0.5), frame.down(value)
        colour = theme.head_colour(head)
        page.block(Rect(centre - width / 2, top, width, frame.box.bottom - top), colour)
        _bar_value(page, f"{value:.2f}", centre, top, frame.box.bottom, colour, rotated=rotated)
        name = f"Head {head}" if slot > 0.55 else str(head)
        page.text(centre, frame.box.bottom + 0.12, name, align="center")
    end = MARGIN + theme.text_width(heading, theme.TITLE_PT)
    limit_line(page, frame, limit, f"uniform: ln {tokens} = {limit:.2f}", end)
    page.y += height


def _bar_value(
    page: Page, label: str, centre: float, top: float, bottom: float, colour: str, *, rotated: bool
) -> None:
    """The value inside the top of a bar, or above a bar that is too short."""
    inside = bottom - top > (theme.text_width(label) + 0.06 if rotated else 0.14)
    shade = theme.ink_on(colour) if inside else theme.INK
    if rotated:
        level = top + 0.03 if inside else top - 0.03
        align = "right" if inside else "left"
        page.text(centre, level, label, colour=shade, align=align, rotated=True)
    else:
        page.text(
            centre, top + 0.105 if inside else top - 0.03, label, colour=shade, align="center"
        )


def curve_lines(
    page: Page,
    rect: Rect,
    *,
    values: FloatArray,
    positions: Sequence[int],
    colours: Sequence[str],
    heading: str,
    bound: tuple[float, str] | None = None,
) -> None:
    """One thin line per column of values (n, K) over integer positions, and their mean, thick.

    The axis is from zero to the highest value; with ``bound``, an upper limit and its label, from
    the lowest value to that limit, which is drawn as a dashed line.
    """
    y = _value_range(values, bound[0] if bound else None)
    frame = _position_frame(page, rect, positions, y, heading)
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    x_values = [float(positions[i]) for i in order]
    if bound:
        end = rect.left + theme.text_width(heading, theme.TITLE_PT)
        limit_line(page, frame, bound[0], bound[1], end)
    thin = 0.9 if len(colours) <= 12 else 0.6
    for column, colour in enumerate(colours):
        _line(page, frame, x_values, values[order, column], colour, thin)
    if len(colours) > 1:
        _line(page, frame, x_values, values[order].mean(axis=1), theme.INK, 1.9)


def curve_frame(
    page: Page, rect: Rect, positions: Sequence[int], y: tuple[float, float], heading: str
) -> Frame:
    """The frame of curves over integer positions; the axis ends at a round number above ``y``."""
    return _position_frame(page, rect, positions, _value_range(np.array(y), None), heading)


def _position_frame(
    page: Page, rect: Rect, positions: Sequence[int], y: tuple[float, float], heading: str
) -> Frame:
    first, last = float(min(positions)), float(max(positions))
    pad = 0.5 if last == first else 0.02 * (last - first)
    frame = framed(page, rect, (first - pad, last + pad), y, heading)
    _draw_position_ticks(page, frame, positions, rect)
    return frame


def _value_range(values: FloatArray, bound: float | None) -> tuple[float, float]:
    """Round numbers from zero to the highest value, or from the lowest value to a bound."""
    low = 0.0 if bound is None else float(values.min())
    high = float(values.max()) if bound is None else bound
    low, high = hold(low, high)
    step = _step(min(low, high), high, 6)
    if bound is None:
        high = math.ceil(high / step - 1e-9) * step
    else:
        low = math.floor(low / step) * step
    return low, high if high > low else low + step


def _step(low: float, high: float, most: int) -> float:
    """The step between round numbers from low to high: about ``most`` of them, at least two."""
    for count in (most, 2 * most, 4 * most):
        values = ticks(low, high, count)
        if len(values) > 1:
            return values[1] - values[0]
    return (high - low) or abs(high) or 1.0


def _draw_position_ticks(page: Page, frame: Frame, positions: Sequence[int], rect: Rect) -> None:
    widest = max(0.25, theme.text_width(str(max(positions))) + 0.1)
    for tick in _position_ticks(frame, positions, rect.width, widest):
        if tick == int(tick):
            x, label = frame.across(tick), str(int(tick))
            page.stroke([[x, frame.box.bottom], [x, frame.box.bottom + 0.025]], theme.INK, 0.7)
            centre = min(x, rect.right - theme.text_width(label) / 2)
            page.text(centre, frame.box.bottom + 0.135, label, align="center")


def _position_ticks(
    frame: Frame, positions: Sequence[int], width: float, distance: float
) -> list[float]:
    """The positions themselves if all are ``distance`` inches apart, else round numbers."""
    values = [float(position) for position in sorted(set(positions))]
    if all(b - a >= distance for a, b in pairwise(map(frame.across, values))):
        return values
    return ticks(values[0], values[-1], most=max(2, min(12, int(width / distance))))


def _line(
    page: Page, frame: Frame, x: list[float], y: FloatArray, colour: str, width: float
) -> None:
    points = frame.points(x, y)
    page.stroke(points, colour, width)
    if len(points) < 3:
        for a, b in points:
            page.block(Rect(a - 0.02, b - 0.02, 0.04, 0.04), colour)


def token_lines(
    page: Page,
    rect: Rect,
    lines: Sequence[tuple[FloatArray, str, float]],
    axis_of: Callable[[float], TokenAxis],
    heading: str,
    bound: tuple[float, str],
) -> None:
    """Lines of values (n,) over the cells of a token axis, up to a dashed bound.

    lines: values, colour and width. axis_of: the token axis for a length in inches. Prefix tokens,
    which have no neighbours, are dots in a strip of their own.
    """
    lowest, _ = hold(min(float(values.min()) for values, _, _ in lines), bound[0])
    step = _step(min(lowest, bound[0]), bound[0], 5)
    low = math.floor(lowest / step) * step
    frame = framed(page, rect, (0.0, 1.0), (min(low, bound[0] - step), bound[0]), heading)
    axis = axis_of(frame.box.width)
    limit_line(page, frame, *bound, rect.left + theme.text_width(heading, theme.TITLE_PT))
    for middle, at, name in axis.labels(across=True):
        x = frame.box.left + middle
        page.stroke([[x, frame.box.bottom], [x, frame.box.bottom + 0.025]], theme.INK, 0.7)
        page.text(frame.box.left + at, frame.box.bottom + 0.135, name, align="center")
    centres = frame.box.left + axis.centres
    for values, colour, width in lines:
        levels = np.array([frame.down(float(value)) for value in values])
        points = np.stack([centres, levels], axis=1)
        page.stroke(points[axis.prefix :], colour, width)
        size = 0.012 + 0.01 * width
        for x, y in points[: axis.prefix]:
            page.block(Rect(x - size, y - size, 2 * size, 2 * size), colour)


def head_legend(sheet: Sheet, heads: Sequence[int], *, mean: bool = True) -> None:
    """The legend of heads and their mean."""
    legend(sheet, [(f"Head {head}", theme.head_colour(head)) for head in heads], mean=mean)


def legend(sheet: Sheet, named: Sequence[tuple[str, str]], *, mean: bool = True) -> None:
    """Lines in their colours with their names, and their mean, on as many rows as needed."""
    entries = [(name, colour, 0.9) for name, colour in named]
    if mean and len(named) > 1:
        entries.append(("Mean", theme.INK, 1.9))
    stroke = 0.16
    widest = max(theme.text_width(name) for name, _, _ in entries) + stroke + 0.18
    columns = max(1, min(len(entries), int(sheet.width / widest)))
    for start in range(0, len(entries), columns):
        page = sheet.room(theme.LINE_INCHES)
        for column, (name, colour, width) in enumerate(entries[start : start + columns]):
            left, base = MARGIN + column * widest, page.y + 0.1
            middle = base - 0.036
            page.stroke([[left, middle], [left + stroke, middle]], colour, width + 0.4)
            page.text(left + stroke + 0.05, base, name)
        page.y += theme.LINE_INCHES
