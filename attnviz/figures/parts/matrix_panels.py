"""Token-by-token matrices as panels, with token labels and colour bars."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.figures.parts import theme
from attnviz.figures.parts.colour_bars import BAR_INCHES, ColourScale, slim_bar, ticked_bar
from attnviz.figures.parts.layout import GAP, MARGIN, Rect
from attnviz.figures.parts.panels import TITLE_INCHES
from attnviz.figures.parts.token_axis import TokenAxis, draw_gaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import ByteArray, FloatArray, MatrixMaps, ModelInfo, Size
    from attnviz.figures.parts.page import Page, Sheet

_INDENT = 0.5
_LABELS = 0.16
_TICKED = 0.24
_LARGE_MOST = 3.2
_SMALL_LEAST = 1.15


class Matrix(NamedTuple):
    """One matrix to draw: titles from long to short, values (n, n) of its cells."""

    titles: tuple[str, ...]
    values: FloatArray
    scale: ColourScale
    swatch: str | None = None


def draw_matrices(
    sheet: Sheet, maps: MatrixMaps, model: ModelInfo, pairs: Sequence[tuple[Matrix, Matrix]]
) -> None:
    """Pairs of matrices side by side, as large as fits, under their titles."""
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
        for index, matrix in enumerate(row):
            left = MARGIN + _INDENT + index * (side + GAP)
            box = page.snapped(Rect(left, page.y + TITLE_INCHES, side, side))
            axis = TokenAxis(maps.edges, maps.grid, model, box.width)
            indent = 0.0
            if matrix.swatch:
                page.block(Rect(left, page.y + 0.03, 0.075, 0.075), matrix.swatch)
                indent = 0.115
            title = theme.shorten(matrix.titles[rank], side - indent, theme.TITLE_PT)
            page.text(left + indent, page.y + TITLE_INCHES - 0.045, title, size=theme.TITLE_PT)
            page.image(partial(_matrix_pixels, matrix, axis), box)
            draw_border(page, box)
            _cls_lines(page, axis, box)
            _names_below(page, axis, box)
            if index == 0:
                names_along(page, axis, box)
            top = box.bottom + _LABELS
            if large:
                ticked_bar(page, matrix.scale, maps.tokens, Rect(left, top, side, 0.06))
            else:
                slim_bar(page, matrix.scale, left, top, side)
        page.y += height


def _rank(row: Sequence[Matrix], width: float) -> int:
    for rank in range(3):
        if all(theme.text_width(m.titles[rank], theme.TITLE_PT) <= width - 0.12 for m in row):
            return rank
    return 2


def _matrix_pixels(matrix: Matrix, axis: TokenAxis, size: Size) -> ByteArray:
    """Cells as pixels, averaged by area; logarithms are taken of the means, not vice versa."""
    finite = matrix.values[np.isfinite(matrix.values)]
    low = float(finite.min()) if finite.size else 0.0
    values = np.nan_to_num(matrix.values, neginf=low)
    down, rows = axis.shares(size.height)
    across, columns = axis.shares(size.width)
    means = np.asarray(down @ values @ across.T, np.float32)
    return draw_gaps(matrix.scale.colours(means), rows, columns)


def draw_border(page: Page, box: Rect) -> None:
    """A thin line around a matrix, whose edge cells may be white."""
    left, top, right, bottom = box.left, box.top, box.right, box.bottom
    corners = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
    page.stroke(corners, theme.INK, 0.4)


def _cls_lines(page: Page, axis: TokenAxis, box: Rect) -> None:
    """Thin lines between the CLS token and the other prefix tokens."""
    if axis.has_cls and axis.prefix > 1:
        at = axis.position(1)
        page.stroke([[box.left, box.top + at], [box.right, box.top + at]], theme.INK, 0.4)
        page.stroke([[box.left + at, box.top], [box.left + at, box.bottom]], theme.INK, 0.4)


def names_along(page: Page, axis: TokenAxis, box: Rect) -> None:
    """Names of the query tokens, down the left side."""
    for middle, at, name in axis.labels(across=False):
        y = box.top + middle
        page.stroke([[box.left - 0.03, y], [box.left, y]], theme.INK, 0.5)
        page.text(box.left - 0.045, box.top + at + 0.036, name, align="right", colour=theme.QUIET)


def _names_below(page: Page, axis: TokenAxis, box: Rect) -> None:
    """Names of the key tokens, below."""
    for middle, at, name in axis.labels(across=True):
        x = box.left + middle
        page.stroke([[x, box.bottom], [x, box.bottom + 0.03]], theme.INK, 0.5)
        page.text(box.left + at, box.bottom + 0.13, name, align="center", colour=theme.QUIET)
