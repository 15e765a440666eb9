"""A histogram of the values of all cells, those that are kept apart from the others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.figures.parts import theme
from attnviz.figures.parts.held import hold
from attnviz.figures.parts.layout import MARGIN, Rect, tick_text, ticks
from attnviz.figures.parts.plots import framed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import BoolArray, FloatArray
    from attnviz.figures.parts.page import Page, Sheet
    from attnviz.figures.parts.plots import Frame

_HEIGHT = 1.3
_BINS = 48


class _Bins(NamedTuple):
    """Edges (n + 1,) along the axis and, per bin, the numbers of kept and of other cells.

    log: the axis is that of the logarithms to base 10.
    """

    edges: NDArray[np.float64]
    kept: NDArray[np.intp]
    others: NDArray[np.intp]
    log: bool

    def position(self, value: float) -> float:
        """Where a value lies along the axis."""
        return math.log10(value) if self.log else value


def split_histogram(
    sheet: Sheet,
    values: FloatArray,
    kept: BoolArray,
    colours: tuple[str, str],
    heading: str,
    threshold: float | None = None,
    *,
    divided: bool = True,
) -> None:
    """The distribution of all values, kept cells and others stacked, and the threshold as a line.

    The axis is logarithmic where a linear one would put nearly all cells into its first bins.
    colours: of the kept cells and of the others. threshold: None takes the lowest value that is
    kept, which the heading then names. divided: whether a value divides the kept cells from the
    others; without, no line is drawn.
    """
    page = sheet.room(_HEIGHT)
    bins = _count(values, kept, threshold)
    if divided and threshold is None and kept.any() and not kept.all():
        threshold = float(values[kept].min())
        heading += f", from {theme.number(threshold, 3)} (dashed)"
    rect = Rect(MARGIN, page.y, sheet.width, _HEIGHT)
    x = float(bins.edges[0]), float(bins.edges[-1])
    highest = hold(0.0, max(4.0, float((bins.kept + bins.others).max())))
    frame = framed(page, rect, x, highest, heading)
    _draw_bars(page, frame, bins, colours)
    _draw_ticks(page, frame, bins, rect)
    if threshold is not None:
        at = frame.across(bins.position(threshold))
        page.stroke([[at, frame.box.top], [at, frame.box.bottom]], theme.INK, 0.9, dashed=True)
    page.y += _HEIGHT


def step_histogram(
    page: Page,
    rect: Rect,
    before: tuple[FloatArray, str],
    after: tuple[FloatArray, str],
    heading: str,
    threshold: float,
) -> None:
    """Two distributions on one axis, counts as logarithms, and the threshold as a line.

    before, after: values and colour; the first as bars, the second as an outline.
    """
    joined = np.concatenate([before[0], after[0]])
    log = _spans_decades(joined)
    scaled = [
        np.log10(values.astype(np.float64)) if log else values for values, _ in (before, after)
    ]
    edges = _bin_edges(
        np.concatenate(scaled), math.log10(threshold) if log and threshold > 0 else threshold
    )
    counts = [np.histogram(values, bins=edges)[0] for values in scaled]
    bins = _Bins(edges, counts[0], counts[1], log)
    highest = max(1, *(int(each.max()) for each in counts))
    powers = range(math.floor(math.log10(highest)) + 1)
    marks = [(float(power), f"{10**power:,}") for power in powers]
    y = (math.log10(0.5), math.log10(highest) + 0.1)
    frame = framed(page, rect, (float(edges[0]), float(edges[-1])), y, heading, marks)
    levels = [
        [frame.down(max(y[0], math.log10(count))) if count else frame.box.bottom for count in each]
        for each in (counts[0].tolist(), counts[1].tolist())
    ]
    sides = [frame.across(edge) for edge in edges.tolist()]
    for left, right, top in zip(sides, sides[1:], levels[0], strict=False):
        if top < frame.box.bottom:
            page.block(Rect(left, top, right - left - 0.008, frame.box.bottom - top), before[1])
    outline = [[x, top] for i, top in enumerate(levels[1]) for x in (sides[i], sides[i + 1])]
    page.stroke(outline, after[1], 1.2)
    _draw_ticks(page, frame, bins, rect)
    at = frame.across(bins.position(threshold))
    page.stroke([[at, frame.box.top], [at, frame.box.bottom]], theme.INK, 0.9, dashed=True)


def _count(values: FloatArray, kept: BoolArray, threshold: float | None) -> _Bins:
    log = threshold is None and _spans_decades(values)
    positions = np.log10(values.astype(np.float64)) if log else values
    edges = _bin_edges(positions, threshold)
    inside = np.histogram(positions[kept], bins=edges)[0]
    outside = np.histogram(positions[~kept], bins=edges)[0]
    return _Bins(edges, inside, outside, log)


def _draw_bars(page: Page, frame: Frame, bins: _Bins, colours: tuple[str, str]) -> None:
    """The other cells at the bottom, the kept ones on top of them."""
    edges = bins.edges.tolist()
    for index, counts in enumerate(zip(bins.others.tolist(), bins.kept.tolist(), strict=True)):
        left, right = frame.across(edges[index]), frame.across(edges[index + 1])
        base = 0.0
        for count, colour in zip(counts, reversed(colours), strict=True):
            if count:
                bottom, top = frame.down(base), frame.down(base + count)
                page.block(Rect(left, top, right - left - 0.008, bottom - top), colour)
                base += count


def _draw_ticks(page: Page, frame: Frame, bins: _Bins, rect: Rect) -> None:
    most = max(5, int(rect.width / 0.7))
    values = _log_ticks(*frame.x, most) if bins.log else ticks(*frame.x, most=most)
    if len(values) < 2 and not bins.log:
        values = ticks(*frame.x, most=2 * most)
    labels = [theme.number(value, 1) for value in values] if bins.log else tick_text(values)
    for value, label in zip(values, labels, strict=True):
        x = frame.across(bins.position(value))
        half = theme.text_width(label) / 2
        if rect.left <= x - half and x + half <= rect.right:
            page.stroke([[x, frame.box.bottom], [x, frame.box.bottom + 0.025]], theme.INK, 0.7)
            page.text(x, frame.box.bottom + 0.135, label, align="center")


def _spans_decades(values: FloatArray) -> bool:
    low, high = float(values.min()), float(values.max())
    return low > 0 and high > 20 * float(np.median(values))


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten between 10^low and 10^high, and 2 and 5 times them where there is room."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        values = [factor * 10.0**power for power in powers for factor in factors]
        values = [value for value in values if low <= math.log10(value) <= high]
        if len(values) <= most:
            break
    return values


def _bin_edges(positions: FloatArray, threshold: float | None) -> NDArray[np.float64]:
    """Edges of the bins; one lies at the threshold, so that no bin holds values of both sides."""
    low, high = hold(float(positions.min()), float(positions.max()))
    if threshold is not None:
        low, high = min(low, threshold), max(high, threshold)
    if high <= low:
        low, high = low - abs(low) / 2 - 1e-12, high + abs(high) / 2 + 1e-12
    if threshold is None:
        return np.linspace(low, high, _BINS + 1)
    step = (high - low) / _BINS
    before = math.ceil((threshold - low) / step)
    steps = np.arange(_BINS + 2, dtype=np.float64) - before
    return np.asarray(threshold + step * steps, np.float64)
