"""The summary figure of a run: distributions of entropy and distance over all images."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import (
    RANDOM,
    layer_text,
    model_parts,
    sheet_of,
)
from attnviz.figures.parts.layout import MARGIN, Rect, ticks
from attnviz.figures.parts.plots import framed, head_legend, limit_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import DrawStyle, FloatArray, ModelInfo
    from attnviz.figures.parts.page import Page, Sheet
    from attnviz.figures.parts.plots import Frame

    Distribution = Mapping[tuple[int, int], FloatArray]

HEADINGS = {
    "entropy": "Entropy H of each head, nats",
    "distance": "Attention distance of each head, input px",
}

_HEIGHT = 1.5
_MARK_MIN = 0.037
"""Minimum width of the mark of a head in inches."""
_MARK_MAX = 0.5
_BETWEEN = 2
"""Space between two layers in marks."""


def draw_distributions(
    distributions: Mapping[str, Distribution],
    images: int,
    limit: float | None,
    model: ModelInfo,
    style: DrawStyle,
) -> tuple[Figure, ...]:
    """One plot per quantity, with a mark for every head of every layer.

    distributions: by quantity (``entropy``, ``distance``) and (layer, head): the 5, 25, 50, 75 and
    95 % quantiles over the images. limit: ln N, if it is the same for all images.
    """
    pairs = list(next(iter(distributions.values())))
    layers, heads = (sorted({pair[side] for pair in pairs}) for side in (0, 1))
    several = len(layers) > 1
    sheet = sheet_of(
        style,
        [
            *model_parts(model),
            f"{images:,} image{'s' * (images != 1)}",
            f"layers {theme.range_text(0, model.depth - 1)}"
            if several
            else layer_text(layers[0], model),
            "black: median over the images; bar: middle half; line: 5 to 95 %",
        ],
        RANDOM if model.random_weights else "",
    )
    for name, distribution in distributions.items():
        most = int((sheet.width - 0.4) / (_MARK_MIN * (len(heads) + _BETWEEN)))
        rows = math.ceil(len(layers) / max(1, most))
        slots = math.ceil(len(layers) / rows)
        for start in range(0, len(layers), slots):
            part = layers[start : start + slots]
            bound = limit if name == "entropy" else None
            _plot(sheet, HEADINGS[name], distribution, part, heads, slots, bound)
            sheet.skip(0.06)
    if several:
        head_legend(sheet, heads, mean=False)
        sheet.skip(0.04)
    return sheet.figures()


def _plot(
    sheet: Sheet,
    heading: str,
    distribution: Distribution,
    layers: Sequence[int],
    heads: Sequence[int],
    slots: int,
    bound: float | None,
) -> None:
    page = sheet.room(_HEIGHT)
    rect = Rect(MARGIN, page.y, sheet.width, _HEIGHT)
    gap = _BETWEEN if slots > 1 else 0
    span = len(heads) + gap
    y = _range(distribution, bound)
    frame = framed(page, rect, (0.0, float(slots * span)), y, heading)
    if bound is not None:
        end = MARGIN + theme.text_width(heading, theme.TITLE_PT)
        limit_line(page, frame, bound, f"uniform {bound:.2f}", end)
    unit = frame.box.width / (slots * span)
    for index, layer in enumerate(layers):
        if index:
            x = frame.across(index * span)
            page.block(Rect(x - 0.003, frame.box.top, 0.006, frame.box.height), theme.RULE)
        marks = {head: distribution.get((layer, head)) for head in heads}
        _marks(page, frame, marks, index * span + gap / 2, named=slots == 1)
        if slots > 1:
            label = f"Layer {layer}" if unit * span > 0.5 else str(layer)
            middle = frame.across((index + 0.5) * span)
            page.text(middle, frame.box.bottom + 0.12, label, align="center")
    page.y += _HEIGHT


def _marks(
    page: Page,
    frame: Frame,
    quantiles: Mapping[int, FloatArray | None],
    first: float,
    *,
    named: bool,
) -> None:
    """The marks of the heads of a layer from position ``first``, with their names if ``named``."""
    unit = frame.across(1.0) - frame.across(0.0)
    for column, (head, values) in enumerate(quantiles.items()):
        if values is None:
            continue
        centre = frame.across(first + column + 0.5)
        _mark(page, frame, centre, min(0.7 * unit, _MARK_MAX), values, theme.head_colour(head))
        if named:
            label = f"Head {head}" if unit > 0.5 else str(head)
            page.text(centre, frame.box.bottom + 0.12, label, align="center")


def _range(distribution: Distribution, bound: float | None) -> tuple[float, float]:
    """Round numbers around all values; a bound is the upper end."""
    low = min(float(values[0]) for values in distribution.values())
    high = bound or max(float(values[-1]) for values in distribution.values())
    steps = ticks(min(low, high), high, most=6)
    step = steps[1] - steps[0] if len(steps) > 1 else (high - low) or abs(high) or 1.0
    low = math.floor(low / step) * step
    high = bound or math.ceil(high / step - 1e-9) * step
    return low, high if high > low else low + step


def _mark(
    page: Page, frame: Frame, centre: float, width: float, values: FloatArray, colour: str
) -> None:
    low, first, middle, third, high = (frame.down(float(value)) for value in values)
    page.stroke([[centre, low], [centre, high]], colour, 0.8)
    page.block(Rect(centre - width / 2, third, width, max(first - third, 0.012)), colour)
    reach = width / 2 + 0.008
    page.stroke([[centre - reach, middle], [centre + reach, middle]], theme.INK, 1.0)
