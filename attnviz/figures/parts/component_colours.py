"""Principal components as colours, in figures, comparisons and overlay files alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.figures.parts.held import hold_arrays

if TYPE_CHECKING:
    from attnviz.domain import BoolArray, FloatArray

PERCENTILES = (2, 98)
"""Percentiles of a component that have no and full colour; values beyond them are clipped."""
PERCENTILES_TEXT = "each from its 2nd to its 98th percentile"

OVERLAY_WEIGHT = 0.6
"""Weight of the colours over the image, relative to ``DrawStyle.alpha``."""


def component_colours(components: FloatArray, mask: BoolArray | None = None) -> FloatArray:
    """Components (gh, gw, 3) as red, green and blue, 0..1, float32.

    Each component runs between its own ``PERCENTILES``; a constant one is 0.5.
    mask (gh, gw): the cells that define the percentiles; the others are 0.
    """
    chosen = np.ones(components.shape[:2], np.bool_) if mask is None else mask
    values = components[chosen].astype(np.float64)
    low, high = hold_arrays(*np.percentile(values, PERCENTILES, axis=0))
    constant = high - low <= 1e-6 * np.maximum(np.abs(high), np.abs(low))
    levels = np.where(constant, 0.5, (values - low) / np.where(constant, 1.0, high - low))
    colours = np.zeros(components.shape, np.float32)
    colours[chosen] = np.clip(levels, 0, 1)
    return colours
