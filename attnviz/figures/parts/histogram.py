"""A histogram of cells of which some are kept and the others are not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from attnviz.figures.parts import theme
from attnviz.figures.parts.layout import MARGIN, Rect, tick_text, ticks
from attnviz.figures.parts.plots import framed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import BoolArray, FloatArray
    from attnviz.figures.parts.page import Sheet


def kept_histogram(
    sheet: Sheet,
    values: FloatArray,
    kept: BoolArray,
    colours: tuple[str, str],
    heading: str,
    border: float | None = None,
) -> None:
    """How the values of all cells are distributed: kept and dropped stacked, the border as a line.

    The axis is logarithmic where a linear one would hold nearly all cells in its first bars.
    colours: of the kept and of the dropped cells. border: where the line stands, wherever the
    values lie; None is at the lowest of the kept, which the heading then names.
    """
    height = 1.3
    page = sheet.room(height)
    decades = border is None and _lie_over_decades(values)
    along = np.log10(values.astype(np.float64)) if decades else values
    edges = _bin_edges(along, border)
    low, high = float(edges[0]), float(edges[-1])
    dropped = np.histogram(along[~kept], bins=edges)[0]
    stays = np.histogram(along[kept], bins=edges)[0]
    tallest = float((dropped + stays).max())
    rect = Rect(MARGIN, page.y, sheet.width, height)
    if border is None and kept.any() and not kept.all():
        border = float(values[kept].min())
        heading += f", from {theme.number(border, 3)} (dashed)"
    frame = framed(page, rect, (low, high), (0.0, tallest), heading)
    for index in range(len(edges) - 1):
        left, right = frame.across(float(edges[index])), frame.across(float(edges[index + 1]))
        base = 0.0
        for amount, colour in ((dropped[index], colours[1]), (stays[index], colours[0])):
            if amount:
                bottom, top = frame.down(base), frame.down(base + float(amount))
                page.block(Rect(left, top, right - left - 0.008, bottom - top), colour)
                base += float(amount)
    most = max(5, int(rect.width / 0.7))
    marks = _decade_marks(low, high, most) if decades else ticks(low, high, most=most)
    texts = [theme.number(mark, 1) for mark in marks] if decades else tick_text(marks)
    for mark, words in zip(marks, texts, strict=True):
        x = frame.across(math.log10(mark) if decades else mark)
        half = theme.text_width(words) / 2
        if rect.left <= x - half and x + half <= rect.right:
            page.stroke([[x, frame.box.bottom], [x, frame.box.bottom + 0.025]], theme.INK, 0.7)
            page.text(x, frame.box.bottom + 0.135, words, align="center")
    if border is not None:
        x = frame.across(math.log10(border) if decades else border)
        page.stroke([[x, frame.box.top], [x, frame.box.bottom]], theme.INK, 0.9, dashed=True)
    page.y += height


def _lie_over_decades(values: FloatArray) -> bool:
    low, high = float(values.min()), float(values.max())
    return low > 0 and high > 20 * float(np.median(values))


def _decade_marks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten between 10^low and 10^high, and 2 and 5 times them where there is room."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        marks = [factor * 10.0**power for power in powers for factor in factors]
        marks = [mark for mark in marks if low <= math.log10(mark) <= high]
        if len(marks) <= most:
            break
    return marks


def _bin_edges(values: FloatArray, border: float | None) -> NDArray[np.float64]:
    """Edges of the bars; one stands at the border, so that no bar holds values of both sides."""
    count = 48
    low, high = float(values.min()), float(values.max())
    if border is not None:
        low, high = min(low, border), max(high, border)
    if high <= low:
        low, high = low - abs(low) / 2 - 1e-12, high + abs(high) / 2 + 1e-12
    if border is None:
        return np.linspace(low, high, count + 1)
    step = (high - low) / count
    before = math.ceil((border - low) / step)
    steps = np.arange(count + 2, dtype=np.float64) - before
    return np.asarray(border + step * steps, np.float64)
