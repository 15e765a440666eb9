"""Panels of principal components: of tokens, queries, keys and values."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Interpolation, Size
from attnviz.figures.parts.component_colours import OVERLAY_WEIGHT, component_colours
from attnviz.figures.parts.overlay import dimmed, enlarge, mix, model_view, on_cells
from attnviz.figures.parts.panels import Panel

if TYPE_CHECKING:
    from attnviz.domain import BoolArray, ByteArray, DrawStyle, FigureImage, FloatArray


def components_panel(
    titles: tuple[str, ...],
    components: FloatArray,
    style: DrawStyle,
    image: FigureImage,
    mask: BoolArray | None = None,
    *,
    swatch: str | None = None,
) -> Panel:
    """Components as colours; outside of a mask (a foreground) the image, dimmed."""
    colours = component_colours(components, mask)
    crisp = style.interpolation is Interpolation.NEAREST and mask is None
    return Panel(
        titles,
        partial(_panel_pixels, colours, style.interpolation, image, mask),
        Size(*components.shape[:2]) if crisp else None,
        swatch=swatch,
        of_cells=mask is None,
    )


def components_overlay(
    titles: tuple[str, ...], components: FloatArray, style: DrawStyle, image: FigureImage
) -> Panel:
    """Components as colours over the image."""
    colours = component_colours(components)
    return Panel(titles, partial(_overlay_pixels, colours, style, image))


def _pixels(colours: FloatArray, how: Interpolation, size: Size) -> ByteArray:
    channels = [enlarge(np.ascontiguousarray(colours[..., k]), size, how) for k in range(3)]
    return np.rint(255 * np.stack(channels, axis=-1)).astype(np.uint8)


def _panel_pixels(
    colours: FloatArray, how: Interpolation, image: FigureImage, mask: BoolArray | None, size: Size
) -> ByteArray:
    if mask is None:
        return _pixels(colours, how, size)
    # There is nothing to interpolate with at the border of a foreground.
    background = dimmed(model_view(image, size), np.zeros_like(mask))

    def draw(pixels: ByteArray) -> ByteArray:
        part = Size(*pixels.shape[:2])
        inside = enlarge(mask.astype(np.float32), part, Interpolation.NEAREST) > 0
        drawn = _pixels(colours, Interpolation.NEAREST, part)
        return np.asarray(np.where(inside[..., None], drawn, pixels), np.uint8)

    return on_cells(background, image.geometry, draw)


def _overlay_pixels(
    colours: FloatArray, style: DrawStyle, image: FigureImage, size: Size
) -> ByteArray:
    def draw(pixels: ByteArray) -> ByteArray:
        part = Size(*pixels.shape[:2])
        weight = np.full(tuple(part), OVERLAY_WEIGHT * style.alpha, np.float32)
        return mix(pixels, _pixels(colours, style.interpolation, part), weight)

    return on_cells(model_view(image, size), image.geometry, draw)
