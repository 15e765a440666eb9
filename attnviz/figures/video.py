"""Maps over a frame at the video's own size, with a strip below each that says what it is."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from attnviz.figures.compare import map_titles
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import RANDOM
from attnviz.figures.parts.components import component_colours
from attnviz.figures.parts.fonts import font_file
from attnviz.figures.parts.overlay import blend, blend_colours, colour
from attnviz.figures.parts.scale import Limits, common_limits, own_limits

if TYPE_CHECKING:
    from attnviz.domain import ByteArray, ComparedMap, DrawStyle, FigureImage, ModelInfo

GAP = 4
"""White pixels between two pictures."""
_ACROSS = 3
_WIDEST = 4096
"""Largest width that hardware decoders of H.264 take."""
_STRIP = 0.055
_STRIP_LEAST = 18
_BAR = 0.22
_TEXT = 0.62


def draw_panels(
    panels: dict[str, ComparedMap],
    image: FigureImage,
    model: ModelInfo,
    style: DrawStyle,
    *,
    over: bool,
    measure: bool = False,
) -> ByteArray | None:
    """The picture, unless ``over``, and each map over it: (h, w, 3) uint8.

    panels: by the names under which they were asked for. measure: only ask for the colour limits.
    """
    height, width = image.pixels.shape[:2]
    strip = max(_STRIP_LEAST, round(_STRIP * height))
    words = [RANDOM.partition(":")[0]] if model.random_weights else []
    tiles: list[ByteArray] = []
    if not over:
        words += [theme.printable(image.name), *image.notes]
        if not measure:
            tiles.append(_tile(image.pixels, _label(" · ".join(words), None, "", width, strip)))
        words = []
    else:
        words += [note for note in image.notes if "mean" in note]
    for name, shown in panels.items():
        title = " · ".join([map_titles(name, [shown], 0)[0], *words])
        words = []
        limits = None
        if shown.is_colours:
            colours = component_colours(shown.values, shown.foreground)
        else:
            values = shown.values[0]
            limits = common_limits([values], style) or own_limits(values)
        if measure:
            continue
        if limits is None:
            laid = blend_colours(
                image.pixels, colours, image.geometry, style.alpha, style.interpolation
            )
        else:
            laid = blend(
                image.pixels,
                values,
                image.geometry,
                limits,
                style.cmap,
                style.alpha,
                style.interpolation,
            )
        ends = None if limits is None else limits.ends
        tiles.append(_tile(laid, _label(title, ends, style.cmap, width, strip)))
    return None if measure else _joined(tiles)


def _tile(pixels: ByteArray, label: ByteArray) -> ByteArray:
    return np.concatenate([pixels, label])


def _joined(tiles: list[ByteArray]) -> ByteArray:
    """The tiles beside each other, in several rows where they would be too wide or too many."""
    height, width = tiles[0].shape[:2]
    across = len(tiles)
    if across > _ACROSS or across * (width + GAP) - GAP > _WIDEST:
        across = int(np.ceil(np.sqrt(across)))
    down = -(-len(tiles) // across)
    size = (down * (height + GAP) - GAP, across * (width + GAP) - GAP, 3)
    out = np.full(size, 255, np.uint8)
    for index, tile in enumerate(tiles):
        top = index // across * (height + GAP)
        left = index % across * (width + GAP)
        out[top : top + height, left : left + width] = tile
    return out


@lru_cache(maxsize=64)
def _label(
    text: str, ends: tuple[float, float] | None, cmap: str, width: int, height: int
) -> ByteArray:
    """A white strip with a text, and at its right a colour bar between two numbers."""
    strip = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(strip)
    font = ImageFont.truetype(font_file(), max(9, round(_TEXT * height)))
    pad, middle = height // 3, height / 2
    room = width - 2 * pad
    if ends is not None:
        low, high = theme.number_pair(*ends)
        bar = min(round(_BAR * width), 8 * height)
        lows, highs = (round(font.getlength(each)) for each in (low, high))
        taken = lows + bar + highs + 2 * pad
        if taken + 2 * pad < width:
            left = width - pad - taken + pad
            draw.text((left - pad, middle), low, theme.INK, font, anchor="lm")
            start = left - pad + lows + pad // 2
            ramp = colour(np.linspace(0, 1, bar, dtype=np.float32), Limits(0.0, 1.0), cmap)
            thick = max(3, height // 3)
            strip.paste(
                Image.fromarray(np.broadcast_to(ramp, (thick, bar, 3)).copy()),
                (start, (height - thick) // 2),
            )
            draw.text((start + bar + pad // 2, middle), high, theme.INK, font, anchor="lm")
            room -= taken + pad
    while text and font.getlength(text) > room:
        text = text[:-2].rstrip(" ·…") + "…" if len(text) > 2 else ""
    draw.text((pad, middle), text, theme.INK, font, anchor="lm")
    return np.asarray(strip)
