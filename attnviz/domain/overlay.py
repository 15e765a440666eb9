"""How a map lies over the image: one rule for figures, overlay files and explorer pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from attnviz.domain.arrays import ByteArray, FloatArray
    from attnviz.domain.geometry import FitGeometry, Size

PADDING = 235
"""Grey level, 0..255, of the part of a padded model input that lies beyond the image."""


def overlay_weight(level: FloatArray, alpha: float) -> FloatArray:
    """The weight of a map's colour over the image: 0 at level 0, ``alpha`` at level 1.

    level: 0..1, of any shape. In between the weight follows the square root of the level, because
    the colours of medium levels are dark and would be lost at half the weight.
    """
    return np.sqrt(level) * np.float32(alpha)


def visible_region(pixels: ByteArray, geometry: FitGeometry, size: Size) -> ByteArray:
    """The region of the image that the model saw, un-squashed, resized to ``size``.

    pixels (H, W, 3) uint8, the original image; returns (height, width, 3) uint8. Where a padded
    region extends beyond the image it is light grey, ``PADDING``.
    """
    from PIL import Image

    region, original = geometry.region, geometry.original
    scale_y = size.height / (region.bottom - region.top)
    scale_x = size.width / (region.right - region.left)
    top, bottom = max(region.top, 0.0), min(region.bottom, float(original.height))
    left, right = max(region.left, 0.0), min(region.right, float(original.width))
    y0, y1 = round((top - region.top) * scale_y), round((bottom - region.top) * scale_y)
    x0, x1 = round((left - region.left) * scale_x), round((right - region.left) * scale_x)
    out = np.full((size.height, size.width, 3), PADDING, np.uint8)
    if y1 > y0 and x1 > x0:
        part = Image.fromarray(pixels).resize(
            (x1 - x0, y1 - y0),
            Image.Resampling.BICUBIC,
            box=(left, top, right, bottom),
            reducing_gap=2.0,
        )
        out[y0:y1, x0:x1] = np.asarray(part)
    return out
