"""The figure about all pictures of a run: entropy and distance of every head, as they spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attnviz.figures.parts import style as ink
from attnviz.figures.parts.caption import RANDOM, layer_words, sheet_of, statistics_words
from attnviz.figures.parts.layout import MARGIN, Rect, ticks
from attnviz.figures.parts.plots import framed, legend, limit_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import DrawStyle, FloatArray, ModelInfo
    from attnviz.figures.parts.page import Page, Sheet
    from attnviz.figures.parts.plots import Frame

    Spread = Mapping[tuple[int, int], FloatArray]

HEADINGS = {
    "entropy": "Entropy H of each head, nats",
    "distance": "Attention distance of each head, input px",
}

_HEIGHT = 1.5
_HEAD_LEAST = 0.037
"""Narrowest share of the width, in inches, for the mark of one head."""
_HEAD_MOST = 0.5
_BETWEEN = 2
"""Space between two layers, in marks."""


def draw_spreads(
    spreads: Mapping[str, Spread],
    pictures: int,
    limit: float | None,
    model: ModelInfo,
    style: DrawStyle,
) -> tuple[Figure, ...]:
    """One plot a quantity; in it a mark for every head of every layer.

    spreads: by quantity (``entropy``, ``distance``) and by (layer, head): the 5, 25, 50, 75 and
    95 % quantiles over the pictures. limit: ln N, where all pictures have the same.
    """
    places = list(next(iter(spreads.values())))
    layers, heads = (sorted({place[side] for place in places}) for side in (0, 1))
    several = len(layers) > 1
    sheet = sheet_of(
        style,
        [
            model.title,
            *statistics_words(model),
            f"{pictures:,} picture{'s' * (pictures != 1)}",
            f"layers 0{ink.TO}{model.depth - 1}" if several else layer_words(layers[0], model),
            "black: median over the pictures; bar: middle half; line: 5 to 95 %",
        ],
        RANDOM if model.random_weights else "",
    )
    for name, spread in spreads.items():
        most = int((sheet.width - 0.4) / (_HEAD_LEAST * (len(heads) + _BETWEEN)))
        rows = math.ceil(len(layers) / max(1, most))
        many = math.ceil(len(layers) / rows)
        for start in range(0, len(layers), many):
            part = layers[start : start + many]
            bound = limit if name == "entropy" else None
            _plot(sheet, HEADINGS[name], spread, part, heads, many, bound)
            sheet.skip(0.06)
    if several:
        legend(sheet, heads, mean=False)
        sheet.skip(0.04)
    return sheet.figures()


def _plot(
    sheet: Sheet,
    heading: str,
    spread: Spread,
    layers: Sequence[int],
    heads: Sequence[int],
    slots: int,
    bound: float | None,
) -> None:
    page = sheet.room(_HEIGHT)
    rect = Rect(MARGIN, page.y, sheet.width, _HEIGHT)
    gap = _BETWEEN if slots > 1 else 0
    span = len(heads) + gap
    y = _range(spread, bound)
    frame = framed(page, rect, (0.0, float(slots * span)), y, heading)
    if bound is not None:
        end = MARGIN + ink.text_width(heading, ink.TITLE_PT)
        limit_line(page, frame, bound, f"uniform {bound:.2f}", end)
    unit = frame.box.width / (slots * span)
    for index, layer in enumerate(layers):
        first = index * span + gap / 2
        if index:
            x = frame.across(index * span)
            page.block(Rect(x - 0.003, frame.box.top, 0.006, frame.box.height), ink.RULE)
        for place, head in enumerate(heads):
            if (layer, head) in spread:
                centre = frame.across(first + place + 0.5)
                wide = min(0.7 * unit, _HEAD_MOST)
                _mark(page, frame, centre, wide, spread[layer, head], ink.head_colour(head))
                if slots == 1:
                    words = f"Head {head}" if unit > 0.5 else str(head)
                    page.text(centre, frame.box.bottom + 0.12, words, align="center")
        if slots > 1:
            words = f"Layer {layer}" if unit * span > 0.5 else str(layer)
            middle = frame.across((index + 0.5) * span)
            page.text(middle, frame.box.bottom + 0.12, words, align="center")
    page.y += _HEIGHT


def _range(spread: Spread, bound: float | None) -> tuple[float, float]:
    """Round numbers around all values; where there is a bound, it is the upper end."""
    low = min(float(values[0]) for values in spread.values())
    high = bound or max(float(values[-1]) for values in spread.values())
    steps = ticks(min(low, high), high, most=6)
    step = steps[1] - steps[0] if len(steps) > 1 else (high - low) or abs(high) or 1.0
    low = math.floor(low / step) * step
    high = bound or math.ceil(high / step - 1e-9) * step
    return low, high if high > low else low + step


def _mark(
    page: Page, frame: Frame, centre: float, wide: float, values: FloatArray, colour: str
) -> None:
    low, first, middle, third, high = (frame.down(float(value)) for value in values)
    page.stroke([[centre, low], [centre, high]], colour, 0.8)
    page.block(Rect(centre - wide / 2, third, wide, max(first - third, 0.012)), colour)
    reach = wide / 2 + 0.008
    page.stroke([[centre - reach, middle], [centre + reach, middle]], ink.INK, 1.0)
