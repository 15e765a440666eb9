"""What the model saw of an image, as a file that a page can hold."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from PIL import Image

from attnviz.domain import Size

if TYPE_CHECKING:
    from attnviz.domain import ByteArray, FitGeometry

LONGEST = 1024
"""Longest side of the image in a page, in pixels: more would not be visible."""

LOSSLESS_PIXELS = 1 << 16
"""Images of up to this many pixels are stored as PNG: in them JPEG's blocks would be visible."""

QUALITY = 88
PADDING = (235, 235, 235)
"""Colour of the part of a padded model input beyond the image, as in the figures."""


def seen(pixels: ByteArray, geometry: FitGeometry) -> Image.Image:
    """The region that the model saw, un-squashed, at its own size or ``LONGEST``.

    Its edges are those of the grid of cells.
    """
    region = geometry.region
    high, wide = region.bottom - region.top, region.right - region.left
    scale = min(1.0, LONGEST / max(high, wide))
    size = Size(max(1, round(high * scale)), max(1, round(wide * scale)))
    top, bottom = max(region.top, 0.0), min(region.bottom, float(geometry.original.height))
    left, right = max(region.left, 0.0), min(region.right, float(geometry.original.width))
    y0, y1 = (round((y - region.top) / high * size.height) for y in (top, bottom))
    x0, x1 = (round((x - region.left) / wide * size.width) for x in (left, right))
    out = Image.new("RGB", (size.width, size.height), PADDING)
    if y1 > y0 and x1 > x0:
        part = Image.fromarray(pixels).resize(
            (x1 - x0, y1 - y0), Image.Resampling.LANCZOS, box=(left, top, right, bottom)
        )
        out.paste(part, (x0, y0))
    return out


def data_address(image: Image.Image) -> str:
    """The image as a ``data:`` address."""
    small = image.width * image.height <= LOSSLESS_PIXELS
    kind, options = ("png", {"optimize": True}) if small else ("jpeg", {"quality": QUALITY})
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
