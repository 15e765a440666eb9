"""What the model saw of an image, as a file that a page can hold."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from typing import TYPE_CHECKING

from PIL import Image

from attnviz.domain import Size
from attnviz.domain.overlay import visible_region

if TYPE_CHECKING:
    from attnviz.domain import ByteArray, FitGeometry

LONGEST = 1024
"""Longest side of the image in a page, in pixels: more would not be visible."""

LOSSLESS_PIXELS = 1 << 16
"""Images of up to this many pixels are stored as PNG: in them JPEG's blocks would be visible."""

QUALITY = 88


def seen(pixels: ByteArray, geometry: FitGeometry) -> Image.Image:
    """What the cells cover of the image, un-squashed, at its own size or ``LONGEST``.

    That is all that the model saw, but for the edges where patches overlap.
    """
    region = geometry.covered
    height, width = region.bottom - region.top, region.right - region.left
    scale = min(1.0, LONGEST / max(height, width))
    size = Size(max(1, round(height * scale)), max(1, round(width * scale)))
    return Image.fromarray(visible_region(pixels, replace(geometry, region=region), size))


def data_address(image: Image.Image) -> str:
    """The image as a ``data:`` address."""
    small = image.width * image.height <= LOSSLESS_PIXELS
    kind, options = ("png", {"optimize": True}) if small else ("jpeg", {"quality": QUALITY})
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
