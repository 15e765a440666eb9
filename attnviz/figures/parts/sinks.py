"""The page on tokens that receive most attention: by layer and head, and on the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import token_name
from attnviz.figures.parts.colour_bars import ColourScale, own_scales_bar
from attnviz.figures.parts.layer_columns import Row, draw_layer_columns
from attnviz.figures.parts.layer_head_map import HEADING, ROW_INCHES, layer_head_map
from attnviz.figures.parts.layout import GAP, MARGIN, Rect
from attnviz.figures.parts.overview import image_at
from attnviz.figures.parts.panels import TITLE_INCHES, image_panel, map_panel, panel_aspect
from attnviz.figures.parts.scale import Limits, from_zero

if TYPE_CHECKING:
    from attnviz.domain import FigureImage, FloatArray, LayersMaps, ModelInfo
    from attnviz.figures.parts.page import Sheet

SINKS_TEXT = (
    "received: attention that a token gets from all tokens, on average 1; sink, named beside the "
    "layer: the token that receives most"
)
_LOWEST, _TALLEST = 1.5, 4.0
_NARROW = 5.0
"""Inches of a figure below which the image and the two maps are below each other."""


def draw_sinks(sheet: Sheet, maps: LayersMaps, image: FigureImage, model: ModelInfo) -> None:
    """Two numbers of the sink of every layer and head, and means over heads on the image.

    The numbers are the attention that it receives, and the norm of its value, over their medians.
    """
    assert maps.received is not None
    assert maps.value_norms is not None
    sheet.break_page()
    _by_head(sheet, maps, image)
    grid, prefix = image.geometry.grid, model.prefix
    received, norms = maps.received.mean(axis=1), maps.value_norms.mean(axis=1)  # L, N
    rows = [
        _row(sheet, name, values[:, prefix:].reshape(-1, *grid))
        for name, values in (("Received", received), ("Value norm", norms))
    ]
    titles = [
        (f"Layer {layer} · {name}", f"{layer} · {name}", str(layer))
        for layer, name in (
            (layer, token_name(index, image, model))
            for layer, index in zip(maps.layers, received.argmax(axis=1).tolist(), strict=True)
        )
    ]
    draw_layer_columns(sheet, rows, titles, panel_aspect(image))
    own_scales_bar(sheet)


def _by_head(sheet: Sheet, maps: LayersMaps, image: FigureImage) -> None:
    """The image, and beside or below it the two numbers by layer and head."""
    ratios, norms = maps.sink_ratios, maps.sink_value_ratios
    assert ratios is not None
    assert norms is not None
    cmap = sheet.style.cmap
    # The first is 1 or more, and often spans decades over the layers.
    decades = ColourScale(Limits(1.0, max(_highest(ratios), 1.01)), cmap, log=True)
    numbers = (
        (ratios, decades, "Received by the sink / median"),
        (norms, ColourScale(from_zero(_highest(norms)), cmap), "Norm of the sink's value / median"),
    )
    height = min(max(ROW_INCHES * len(maps.layers) + 0.55, _LOWEST), _TALLEST)
    aspect, across = panel_aspect(image), sheet.width >= _NARROW
    width = min(sheet.width * (0.28 if across else 0.5), (height - HEADING) * aspect)
    page = sheet.room(height)
    image_at(page, image_panel(image), Rect(MARGIN, page.y, width, width / aspect))
    left, slot = MARGIN, sheet.width
    if across:
        left += max(width, 1.0) + 2 * GAP
        slot = (sheet.width + MARGIN - left - 2 * GAP) / 2
    else:
        page.y += TITLE_INCHES + width / aspect + 0.06
    for values, scale, heading in numbers:
        page = page if across else sheet.room(height)
        rect = Rect(left, page.y, slot, height)
        layer_head_map(page, rect, values, maps.layers, maps.heads, scale, heading)
        left += slot + 2 * GAP if across else 0.0
        page.y += 0.0 if across else height + 0.06
    page.y += height + 0.06 if across else 0.0


def _highest(values: FloatArray) -> float:
    """The highest finite value; a median of 0 makes infinite ones."""
    return float(np.max(values, initial=0.0, where=np.isfinite(values)))


def _row(sheet: Sheet, name: str, values: FloatArray) -> Row:
    """Maps (L, gh, gw), each from 0 to its maximum, which is written below it."""
    highest = values.max(axis=(1, 2)).tolist()
    panels = [
        map_panel(("",), each, sheet.style, from_zero(high))
        for each, high in zip(values, highest, strict=True)
    ]
    return Row(name, panels, [theme.number(high) for high in highest])
