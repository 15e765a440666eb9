"""Principal components as colours: one rule for tokens, queries, keys and values."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Interpolation, Size
from attnviz.figures.parts.overlay import dimmed, enlarge, mix, model_view
from attnviz.figures.parts.panels import Panel

if TYPE_CHECKING:
    from attnviz.domain import BoolArray, ByteArray, DrawStyle, FigureImage, FloatArray

PERCENTILES = (2, 98)
"""Percentiles of a component that have no and full colour; values beyond them are clipped."""
PERCENTILES_TEXT = "each from its 2nd to its 98th percentile"

_OVERLAY_WEIGHT = 0.6
"""Weight of the colours over the image, relative to ``DrawStyle.alpha``."""


def component_colours(components: FloatArray, mask: BoolArray | None = None) -> FloatArray:
    """Components (gh, gw, 3) as red, green and blue, 0..1, float32.

    Each component runs between its own ``PERCENTILES``; a constant one is 0.5.
    mask (gh, gw): the cells that define the percentiles; the others are 0.
    """
    chosen = np.ones(components.shape[:2], np.bool_) if mask is None else mask
    values = components[chosen].astype(np.float64)
    low, high = np.percentile(values, PERCENTILES, axis=0)
    constant = high - low <= 1e-6 * np.maximum(np.abs(high), np.abs(low))
    levels = np.where(constant, 0.5, (values - low) / np.where(constant, 1.0, high - low))
    colours = np.zeros(components.shape, np.float32)
    colours[chosen] = np.clip(levels, 0, 1)
    return colours


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
    weight = np.full(tuple(size), _OVERLAY_WEIGHT * style.alpha, np.float32)
    return mix(model_view(image, size), _pixels(colours, style.interpolation, size), weight)
