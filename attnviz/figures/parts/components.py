"""Panels of principal components: of tokens, queries, keys and values."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Interpolation, Size
from attnviz.figures.parts.component_colours import OVERLAY_WEIGHT, component_colours
from attnviz.figures.parts.overlay import dimmed, enlarge, mix, model_view
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
    inside = enlarge(mask.astype(np.float32), size, Interpolation.NEAREST) > 0
    background = dimmed(model_view(image, size), np.zeros_like(mask))
    drawn = _pixels(colours, Interpolation.NEAREST, size)
    return np.asarray(np.where(inside[..., None], drawn, background), np.uint8)


def _overlay_pixels(
    colours: FloatArray, style: DrawStyle, image: FigureImage, size: Size
) -> ByteArray:
    weight = np.full(tuple(size), OVERLAY_WEIGHT * style.alpha, np.float32)
    return mix(model_view(image, size), _pixels(colours, style.interpolation, size), weight)
