"""A number of every head of every layer, as colours: layers down, heads across."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Interpolation, Size
from attnviz.figures.parts import theme
from attnviz.figures.parts.colour_bars import BAR_INCHES, ColourScale, slim_bar
from attnviz.figures.parts.layout import Rect
from attnviz.figures.parts.overlay import enlarge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import ByteArray, FloatArray
    from attnviz.figures.parts.page import Page

HEADING, LABELS = 0.2, 0.15
ROW_INCHES = 0.16
"""Height of a layer with room for its numbers."""

_LEAST_ROW = 0.12


def layer_head_map(
    page: Page,
    rect: Rect,
    values: FloatArray,
    layers: Sequence[int],
    heads: Sequence[int],
    scale: ColourScale,
    heading: str,
) -> None:
    """Values (L, H) in the colours of a scale, and written in the cells where they fit."""
    indent = max(theme.text_width(f"{layer}") for layer in (*layers, "head")) + 0.05
    height = rect.height - HEADING - LABELS - BAR_INCHES
    box = page.snapped(Rect(rect.left + indent, rect.top + HEADING, rect.width - indent, height))
    title = theme.shorten(heading, rect.width, theme.TITLE_PT)
    page.text(rect.left, rect.top + HEADING - 0.075, title, size=theme.TITLE_PT)
    page.image(partial(_pixels, values, scale), box, Size(*values.shape))
    _labels(page, box, layers, heads)
    _numbers(page, box, values, scale)
    slim_bar(page, scale, box.left, box.bottom + LABELS, box.width)


def _pixels(values: FloatArray, scale: ColourScale, size: Size) -> ByteArray:
    return scale.colours(enlarge(values, size, Interpolation.NEAREST))


def _labels(page: Page, box: Rect, layers: Sequence[int], heads: Sequence[int]) -> None:
    """Layers to the left, heads below; as many as fit."""
    step = box.height / len(layers)
    every = max(1, int(np.ceil(_LEAST_ROW / step)))
    for index in range(0, len(layers), every):
        base = box.top + (index + 0.5) * step + 0.035
        page.text(box.left - 0.04, base, str(layers[index]), align="right", colour=theme.QUIET)
    step = box.width / len(heads)
    every = max(1, int(np.ceil((theme.text_width(str(max(heads))) + 0.05) / step)))
    for index in range(0, len(heads), every):
        x = box.left + (index + 0.5) * step
        page.text(x, box.bottom + 0.115, str(heads[index]), align="center", colour=theme.QUIET)
    page.text(box.left - 0.04, box.bottom + 0.115, "head", align="right", colour=theme.QUIET)


def _numbers(page: Page, box: Rect, values: FloatArray, scale: ColourScale) -> None:
    texts = [[theme.number(value) for value in row] for row in values.tolist()]
    width, height = box.width / values.shape[1], box.height / values.shape[0]
    widest = max(theme.text_width(text) for row in texts for text in row)
    if width < widest + 0.04 or height < _LEAST_ROW:
        return
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            shade = theme.hex_of(scale.colours(values[row, column]).tolist())
            x, y = box.left + (column + 0.5) * width, box.top + (row + 0.5) * height + 0.035
            page.text(x, y, text, align="center", colour=theme.ink_on(shade))
