"""Object masks: which pixels of a picture an object covers.

- With an alpha channel: alpha above 0. Otherwise: any channel above 0.
- With a palette (PASCAL VOC): the index counts, not the colour; 0 is background and 255 the border
  that belongs to nobody. Both are no object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from attnviz.domain import Size
from attnviz.errors import ImageError
from attnviz.images.names import printable

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain import BoolArray

NOBODY = 255
"""Index of the border in masks with a palette."""


def read_mask(path: Path, size: Size) -> BoolArray:
    """The object's pixels, (height, width) bool, of a picture of ``size``.

    Raises:
        ImageError: Unreadable, of another size than the picture, or without any object.
    """
    try:
        with Image.open(path) as image:
            found = Size(image.height, image.width)
            if found != size:
                raise ImageError(
                    f"the mask {printable(path)} is {found} pixels large, its picture {size}",
                    "a mask needs a pixel for every pixel of its picture",
                )
            mask = _object_pixels(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ImageError(f"the mask {printable(path)} cannot be read ({error})") from error
    if not mask.any():
        raise ImageError(f"the mask {printable(path)} holds no object: no pixel is above 0")
    return mask


def _object_pixels(image: Image.Image) -> BoolArray:
    if image.mode == "P":
        index = np.asarray(image)
        return np.asarray((index > 0) & (index != NOBODY))
    if image.mode in ("LA", "RGBA", "PA"):
        return np.asarray(image.getchannel("A")) > 0
    values = np.asarray(image)
    return np.asarray(values.any(axis=2) if values.ndim == 3 else values != 0)
