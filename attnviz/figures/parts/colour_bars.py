"""Colour bars: one below a panel, one for all panels, one with ticks below a matrix."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.figures.parts import theme
from attnviz.figures.parts.layout import MARGIN, Rect, tick_text, ticks
from attnviz.figures.parts.overlay import colour
from attnviz.figures.parts.scale import Limits

if TYPE_CHECKING:
    from attnviz.domain import ByteArray, FloatArray, Size
    from attnviz.figures.parts.page import Page, Sheet

BAR_INCHES = 0.14
SHARED_BAR_INCHES = 0.3
_BAR_HEIGHT = 0.055
_POINT = 0.06
"""Length of a pointed end in inches."""
SIGNED_CMAP = "RdBu_r"
"""Colour map of signed values, white at 0."""


class ColourScale(NamedTuple):
    """A colour map between two limits.

    log: colours follow the logarithm of the value. symmetric: the middle of the colour map is 0,
    and equal magnitudes are equally far from it; only colours between the limits occur.
    """

    limits: Limits
    cmap: str
    log: bool = False
    symmetric: bool = False

    def colours(self, values: FloatArray) -> ByteArray:
        """Colours (..., 3) of values of any shape."""
        if self.symmetric:
            reach = max(map(abs, self.limits.ends))
            return colour(values, Limits(-reach, reach), self.cmap)
        if not self.log:
            return colour(values, self.limits, self.cmap)
        low, high = (math.log(value) for value in self.limits.ends)
        levels = np.log(np.maximum(values, self.limits.low)).astype(np.float32)
        return colour(levels, Limits(low, high), self.cmap)

    @property
    def ends(self) -> tuple[str, str]:
        """The limits as text; those of logarithms may be powers of ten apart."""
        if self.log:
            return theme.number(self.limits.low), theme.number(self.limits.high)
        return theme.number_pair(*self.limits.ends)

    @property
    def levels(self) -> tuple[float, float]:
        """The part of the colour map, 0..1, between the limits."""
        if not self.symmetric:
            return 0.0, 1.0
        reach = max(map(abs, self.limits.ends))
        return 0.5 + self.limits.low / (2 * reach), 0.5 + self.limits.high / (2 * reach)

    def level(self, value: float) -> float:
        """The position of a value between the limits, 0..1."""
        low, high = self.limits.ends
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low)


def _gradient(cmap: str, levels: tuple[float, float], size: Size) -> ByteArray:
    """The colours of a colour map between two levels, 0..1, from left to right."""
    ramp = (np.arange(size.width, dtype=np.float32) + np.float32(0.5)) / np.float32(size.width)
    first, last = np.float32(levels[0]), np.float32(levels[1])
    drawn = colour(first + ramp * (last - first), Limits(0.0, 1.0), cmap)
    return np.repeat(drawn[None], size.height, axis=0)


def _bar(page: Page, scale: ColourScale, rect: Rect) -> Rect:
    """The colours over a rectangle; an end beyond which there are values is a point.

    Returns the rectangle of the colours between the limits, without the points.
    """
    limits, levels, bar = scale.limits, scale.levels, page.snapped(rect)
    point = page.snapped(Rect(bar.left, bar.top, min(_POINT, bar.width / 3), bar.height)).width
    inner = Rect(
        bar.left + point * limits.below,
        bar.top,
        bar.width - point * (limits.below + limits.above),
        bar.height,
    )
    page.image(partial(_gradient, scale.cmap, levels), inner)
    ends = (
        (limits.below, levels[0], bar.left, inner.left),
        (limits.above, levels[1], bar.right, inner.right),
    )
    for pointed, level, tip, base in ends:
        if pointed:
            shade = colour(np.array([level], np.float32), Limits(0.0, 1.0), scale.cmap)[0]
            corners = [[tip, bar.top + bar.height / 2], [base, bar.top], [base, bar.bottom]]
            page.shape(corners, theme.hex_of(shade.tolist()))
    return inner


def slim_bar(
    page: Page,
    scale: ColourScale,
    left: float,
    top: float,
    width: float,
) -> None:
    """A colour bar on one line between the numbers at its ends."""
    low, high = scale.ends
    base = top + BAR_INCHES - 0.025
    start = left + theme.text_width(low) + 0.04
    stop = left + width - theme.text_width(high) - 0.04
    page.text(left, base, low)
    page.text(left + width, base, high, align="right")
    if stop > start:
        bar = Rect(start, base - 0.035 - _BAR_HEIGHT / 2, stop - start, _BAR_HEIGHT)
        _bar(page, scale, bar)


def shared_bar(sheet: Sheet, limits: Limits, name: str, cmap: str | None = None) -> None:
    """The colour bar of all panels on a shared scale, with its name and ticks.

    cmap: None for that of the figure.
    """
    page = sheet.room(SHARED_BAR_INCHES)
    left = MARGIN + theme.text_width(name, theme.TITLE_PT) + 0.12
    width = min(2.6, sheet.width - left - 0.25)
    page.text(MARGIN, page.y + 0.095, name, size=theme.TITLE_PT)
    scale = ColourScale(limits, cmap or sheet.style.cmap)
    bar = _bar(page, scale, Rect(left, page.y + 0.02, width, 0.085))
    inner = [value for value in ticks(*limits.ends, most=5) if limits.low < value < limits.high]
    low, high = theme.number_pair(*limits.ends)
    span = limits.high - limits.low
    labels = zip(inner, tick_text(inner), strict=True)
    end = bar.right - theme.text_width(high) / 2
    previous = bar.left + theme.text_width(low) / 2
    for value, label in ((limits.low, low), *labels, (limits.high, high)):
        x = bar.left + (value - limits.low) / span * bar.width
        half = theme.text_width(label) / 2
        if value not in limits.ends and not previous + 0.08 < x - half < x + half + 0.08 < end:
            continue
        page.stroke([[x, bar.bottom], [x, bar.bottom + 0.025]], theme.QUIET, 0.5)
        page.text(x, bar.bottom + 0.13, label, align="center")
        previous = x + half
    page.y += SHARED_BAR_INCHES


def own_scales_bar(sheet: Sheet) -> None:
    """The colour bar of many maps, each from 0 to the number next to it."""
    page = sheet.room(BAR_INCHES)
    base = page.y + BAR_INCHES - 0.025
    page.text(MARGIN, base, "Each map: 0")
    left = MARGIN + theme.text_width("Each map: 0") + 0.05
    width = min(1.2, sheet.width / 3)
    scale = ColourScale(Limits(0.0, 1.0), sheet.style.cmap)
    _bar(page, scale, Rect(left, base - 0.035 - _BAR_HEIGHT / 2, width, _BAR_HEIGHT))
    page.text(left + width + 0.05, base, "the number next to it")
    page.y += BAR_INCHES


def ticked_bar(page: Page, scale: ColourScale, tokens: int, bar: Rect) -> None:
    """A colour bar with ticks below it; 1/N, uniform attention, is one of a logarithmic scale."""
    limits = scale.limits
    bar = _bar(page, scale, bar)
    ends = scale.ends
    labels = [(limits.low, ends[0]), (limits.high, ends[1])]
    if scale.log:
        powers = range(math.ceil(math.log10(limits.low)), math.floor(math.log10(limits.high)) + 1)
        labels += [(1 / tokens, "1/N"), *((10.0**p, theme.number(10.0**p, 1)) for p in powers)]
    else:
        inner = ticks(*limits.ends, most=5)
        labels += zip(inner, tick_text(inner), strict=True)
    drawn: list[tuple[float, float]] = []
    for value, label in labels:
        half = theme.text_width(label) / 2
        level = scale.level(value)
        x = bar.left + level * bar.width
        middle = min(max(x, bar.left + half), bar.right - half)
        clear = all(abs(middle - other) > half + width + 0.08 for other, width in drawn)
        if clear and 0 <= level <= 1:
            drawn.append((middle, half))
            page.stroke([[x, bar.bottom], [x, bar.bottom + 0.025]], theme.QUIET, 0.5)
            page.text(middle, bar.bottom + 0.125, label, align="center")
