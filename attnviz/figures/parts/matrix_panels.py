"""Matrices of tokens by tokens as panels: cells by their area, names of tokens, colour bars."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.figures.parts import theme
from attnviz.figures.parts.layout import GAP, MARGIN, Rect, tick_text, ticks
from attnviz.figures.parts.overlay import colour
from attnviz.figures.parts.panels import BAR_INCHES, TITLE_INCHES, gradient, slim_bar
from attnviz.figures.parts.scale import Limits
from attnviz.figures.parts.token_axis import TokenAxis, gaps_drawn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import ByteArray, FloatArray, MatrixMaps, ModelInfo, Size
    from attnviz.figures.parts.page import Page, Sheet

LOGIT_CMAP = "RdBu_r"
"""Colours of values of either sign, white at 0."""

_INDENT = 0.5
_LABELS = 0.16
_TICKED = 0.24
_LARGE_MOST = 3.2
_SMALL_LEAST = 1.15


class Colours(NamedTuple):
    """How values become colours."""

    limits: Limits
    cmap: str
    log: bool = False

    def of(self, values: FloatArray) -> ByteArray:
        """Colours (..., 3) of values of any shape."""
        if not self.log:
            return colour(values, self.limits, self.cmap)
        low, high = (math.log(value) for value in self.limits)
        levels = np.log(np.maximum(values, self.limits.low)).astype(np.float32)
        return colour(levels, Limits(low, high), self.cmap)

    @property
    def ends(self) -> tuple[str, str]:
        """The limits in words; those of logarithms may be powers of ten apart."""
        if self.log:
            return theme.number(self.limits.low), theme.number(self.limits.high)
        return theme.number_pair(*self.limits)

    def level(self, value: float) -> float:
        """Where a value stands between the limits, 0..1."""
        low, high = self.limits
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low)


class Matrix(NamedTuple):
    """One matrix to draw: titles from long to short, cells (n, n)."""

    titles: tuple[str, ...]
    values: FloatArray
    colours: Colours
    swatch: str | None = None


def draw_matrices(
    sheet: Sheet, maps: MatrixMaps, model: ModelInfo, pairs: Sequence[tuple[Matrix, Matrix]]
) -> None:
    """Pairs of matrices side by side, as large as they fit, under their titles."""
    room = sheet.width - _INDENT
    across = 1 if len(pairs) == 1 else max(1, int((room + GAP) / (2 * (_SMALL_LEAST + GAP))))
    columns = 2 * across
    side = min((room - (columns - 1) * GAP) / columns, _LARGE_MOST)
    large = len(pairs) == 1
    height = TITLE_INCHES + side + _LABELS + (_TICKED if large else BAR_INCHES) + GAP
    for start in range(0, len(pairs), across):
        page = sheet.room(height)
        row = [matrix for pair in pairs[start : start + across] for matrix in pair]
        rank = _rank(row, side)
        for place, matrix in enumerate(row):
            left = MARGIN + _INDENT + place * (side + GAP)
            box = page.snapped(Rect(left, page.y + TITLE_INCHES, side, side))
            axis = TokenAxis(maps.edges, maps.grid, model, box.width)
            indent = 0.0
            if matrix.swatch:
                page.block(Rect(left, page.y + 0.03, 0.075, 0.075), matrix.swatch)
                indent = 0.115
            title = theme.shortened(matrix.titles[rank], side - indent, theme.TITLE_PT)
            page.text(left + indent, page.y + TITLE_INCHES - 0.045, title, size=theme.TITLE_PT)
            page.image(partial(_matrix_pixels, matrix, axis), box)
            outline(page, box)
            _cls_lines(page, axis, box)
            _across(page, axis, box)
            if place == 0:
                names_along(page, axis, box)
            top = box.bottom + _LABELS
            if large:
                ticked_bar(page, matrix.colours, maps.tokens, Rect(left, top, side, 0.06))
            else:
                words = matrix.colours.ends
                slim_bar(page, matrix.colours.limits, matrix.colours.cmap, left, top, side, words)
        page.y += height


_TICKED = 0.24


def _rank(row: Sequence[Matrix], width: float) -> int:
    for rank in range(3):
        if all(theme.text_width(m.titles[rank], theme.TITLE_PT) <= width - 0.12 for m in row):
            return rank
    return 2


def _matrix_pixels(matrix: Matrix, axis: TokenAxis, size: Size) -> ByteArray:
    """Cells as pixels, by their area; logarithms are taken of the means, not the other way."""
    finite = matrix.values[np.isfinite(matrix.values)]
    low = float(finite.min()) if finite.size else 0.0
    values = np.nan_to_num(matrix.values, neginf=low)
    down, rows = axis.shares(size.height)
    across, columns = axis.shares(size.width)
    drawn = np.asarray(down @ values @ across.T, np.float32)
    return gaps_drawn(matrix.colours.of(drawn), rows, columns)


def outline(page: Page, box: Rect) -> None:
    """A thin line around a matrix, whose own edge may be white."""
    left, top, right, bottom = box.left, box.top, box.right, box.bottom
    corners = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
    page.stroke(corners, theme.INK, 0.4)


def _cls_lines(page: Page, axis: TokenAxis, box: Rect) -> None:
    """Thin lines between the class token and the other prefix tokens."""
    if axis.has_cls and axis.prefix > 1:
        at = axis.place(1)
        page.stroke([[box.left, box.top + at], [box.right, box.top + at]], theme.INK, 0.4)
        page.stroke([[box.left + at, box.top], [box.left + at, box.bottom]], theme.INK, 0.4)


def names_along(page: Page, axis: TokenAxis, box: Rect) -> None:
    """Names of the query tokens, down the left side."""
    for middle, at, words in axis.labels(across=False):
        y = box.top + middle
        page.stroke([[box.left - 0.03, y], [box.left, y]], theme.INK, 0.5)
        page.text(box.left - 0.045, box.top + at + 0.036, words, align="right", colour=theme.QUIET)


def _across(page: Page, axis: TokenAxis, box: Rect) -> None:
    """Names of the key tokens, below."""
    for middle, at, words in axis.labels(across=True):
        x = box.left + middle
        page.stroke([[x, box.bottom], [x, box.bottom + 0.03]], theme.INK, 0.5)
        page.text(box.left + at, box.bottom + 0.13, words, align="center", colour=theme.QUIET)


def ticked_bar(page: Page, colours: Colours, tokens: int, bar: Rect) -> None:
    """A colour bar with numbers below it, even attention 1/N among them."""
    limits = colours.limits
    bar = page.snapped(bar)
    page.image(partial(gradient, colours.cmap), bar)
    ends = colours.ends
    named = [(limits.low, ends[0]), (limits.high, ends[1])]
    if colours.log:
        powers = range(math.ceil(math.log10(limits.low)), math.floor(math.log10(limits.high)) + 1)
        named += [(1 / tokens, "1/N"), *((10.0**p, theme.number(10.0**p, 1)) for p in powers)]
    else:
        inner = ticks(*limits, most=5)
        named += zip(inner, tick_text(inner), strict=True)
    taken: list[tuple[float, float]] = []
    for value, words in named:
        half = theme.text_width(words) / 2
        level = colours.level(value)
        x = bar.left + level * bar.width
        middle = min(max(x, bar.left + half), bar.right - half)
        clear = all(abs(middle - other) > half + width + 0.08 for other, width in taken)
        if clear and 0 <= level <= 1:
            taken.append((middle, half))
            page.stroke([[x, bar.bottom], [x, bar.bottom + 0.025]], theme.QUIET, 0.5)
            page.text(middle, bar.bottom + 0.125, words, align="center")
