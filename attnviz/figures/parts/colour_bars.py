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
_BAR_HEIGHT = 0.055
SIGNED_CMAP = "RdBu_r"
"""Colour map of signed values, white at 0."""


class ColourScale(NamedTuple):
    """A colour map between two limits, linear or logarithmic."""

    limits: Limits
    cmap: str
    log: bool = False

    def colours(self, values: FloatArray) -> ByteArray:
        """Colours (..., 3) of values of any shape."""
        if not self.log:
            return colour(values, self.limits, self.cmap)
        low, high = (math.log(value) for value in self.limits)
        levels = np.log(np.maximum(values, self.limits.low)).astype(np.float32)
        return colour(levels, Limits(low, high), self.cmap)

    @property
    def ends(self) -> tuple[str, str]:
        """The limits as text; those of logarithms may be powers of ten apart."""
        if self.log:
            return theme.number(self.limits.low), theme.number(self.limits.high)
        return theme.number_pair(*self.limits)

    def level(self, value: float) -> float:
        """The position of a value between the limits, 0..1."""
        low, high = self.limits
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low)


def gradient(cmap: str, size: Size) -> ByteArray:
    """All colours of a colour map from left to right: the raster of a colour bar."""
    ramp = (np.arange(size.width, dtype=np.float32) + np.float32(0.5)) / np.float32(size.width)
    return np.repeat(colour(ramp, Limits(0.0, 1.0), cmap)[None], size.height, axis=0)


def slim_bar(
    page: Page,
    limits: Limits,
    cmap: str,
    left: float,
    top: float,
    width: float,
    ends: tuple[str, str] | None = None,
) -> None:
    """A colour bar on one line between the numbers at its ends.

    ends: the two numbers as text, where they do not share their decimal places.
    """
    low, high = ends or theme.number_pair(*limits)
    base = top + BAR_INCHES - 0.025
    start = left + theme.text_width(low) + 0.04
    stop = left + width - theme.text_width(high) - 0.04
    page.text(left, base, low)
    page.text(left + width, base, high, align="right")
    if stop > start:
        bar = Rect(start, base - 0.035 - _BAR_HEIGHT / 2, stop - start, _BAR_HEIGHT)
        page.image(partial(gradient, cmap), page.snapped(bar))


def shared_bar(sheet: Sheet, limits: Limits, name: str) -> None:
    """The colour bar of all panels on a shared scale, with its name and ticks."""
    page = sheet.room(0.3)
    left = MARGIN + theme.text_width(name, theme.TITLE_PT) + 0.12
    width = min(2.6, sheet.width - left - 0.25)
    page.text(MARGIN, page.y + 0.095, name, size=theme.TITLE_PT)
    bar = page.snapped(Rect(left, page.y + 0.02, width, 0.085))
    page.image(partial(gradient, sheet.style.cmap), bar)
    inner = [value for value in ticks(*limits, most=5) if limits.low < value < limits.high]
    low, high = theme.number_pair(*limits)
    span = limits.high - limits.low
    labels = zip(inner, tick_text(inner), strict=True)
    end = bar.right - theme.text_width(high) / 2
    previous = bar.left + theme.text_width(low) / 2
    for value, label in ((limits.low, low), *labels, (limits.high, high)):
        x = bar.left + (value - limits.low) / span * bar.width
        half = theme.text_width(label) / 2
        if value not in limits and not previous + 0.08 < x - half < x + half + 0.08 < end:
            continue
        page.stroke([[x, bar.bottom], [x, bar.bottom + 0.025]], theme.QUIET, 0.5)
        page.text(x, bar.bottom + 0.13, label, align="center")
        previous = x + half
    page.y += 0.3


def ticked_bar(page: Page, scale: ColourScale, tokens: int, bar: Rect) -> None:
    """A colour bar with ticks below it; 1/N, uniform attention, is one of a logarithmic scale."""
    limits = scale.limits
    bar = page.snapped(bar)
    page.image(partial(gradient, scale.cmap), bar)
    ends = scale.ends
    labels = [(limits.low, ends[0]), (limits.high, ends[1])]
    if scale.log:
        powers = range(math.ceil(math.log10(limits.low)), math.floor(math.log10(limits.high)) + 1)
        labels += [(1 / tokens, "1/N"), *((10.0**p, theme.number(10.0**p, 1)) for p in powers)]
    else:
        inner = ticks(*limits, most=5)
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
