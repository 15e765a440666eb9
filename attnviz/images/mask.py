"""Object masks: which pixels of an image an object covers.

- With an alpha channel that hides some pixels and not all: alpha above 0. An alpha channel that is
  opaque everywhere, or nowhere, says nothing: the colours count.
- Otherwise: any channel above 0. In a JPEG file, whose compression leaves no value as it was, any
  channel above half.
- With a palette (PASCAL VOC): the index counts, not the colour; 0 is background and 255 the border
  that belongs to nobody. Neither is the object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from attnviz.domain import DEFAULT_MAX_PIXELS, Size
from attnviz.errors import ImageError
from attnviz.images.names import printable
from attnviz.images.open import open_image, read_bytes, reason
from attnviz.images.quiet import quiet
from attnviz.images.upright import orientation_of, upright

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain import BoolArray

NOBODY = 255
"""Index of the border in masks with a palette."""

MASK_NOTE = "the mask is"
"""How every note on a mask begins."""

_LOSSY = ("JPEG", "MPO")
_HALF = 127


class Mask(NamedTuple):
    """The object's pixels, (height, width) bool, and a note on how they were read.

    ``note`` is "" where the file leaves no choice.
    """

    pixels: BoolArray
    note: str = ""


def mask_notes(mask: Mask) -> tuple[str, ...]:
    """What a user should know of a mask."""
    return (f"{MASK_NOTE} {mask.note}",) if mask.note else ()


def read_mask(path: Path, size: Size) -> Mask:
    """The object's pixels of an image of ``size``, and how they were read.

    Raises:
        ImageError: Unreadable, of another size than the image, or without any object.
    """
    name = printable(path)
    try:
        with quiet():
            mask = _read(path, name, size)
    except ImageError as error:
        raise ImageError(f"the mask {error.message}", error.hint) from error
    except Exception as error:
        # Decoders meet damage with any kind of error.
        raise ImageError(f"the mask {name} cannot be read ({reason(error)})") from error
    if not mask.pixels.any():
        raise ImageError(f"the mask {name} holds no object: no pixel is above 0")
    return mask


def _read(path: Path, name: str, size: Size) -> Mask:
    data = read_bytes(path, name, DEFAULT_MAX_PIXELS)
    image = open_image(data, path, name).image
    _check_size(Size(image.height, image.width), size, name, turned_too=True)
    image.load()
    mask = upright(image, orientation_of(image))
    _check_size(Size(mask.height, mask.width), size, name)
    return _object_pixels(mask, lossy=image.format in _LOSSY)


def _check_size(have: Size, want: Size, name: str, *, turned_too: bool = False) -> None:
    if have != want and not (turned_too and have == Size(want.width, want.height)):
        raise ImageError(
            f"{name} is {have} pixels large, its image {want}",
            "a mask needs a pixel for every pixel of its image",
        )


def _object_pixels(image: Image.Image, *, lossy: bool) -> Mask:
    if image.mode == "P":
        index = np.asarray(image)
        return Mask(np.asarray((index > 0) & (index != NOBODY)))
    note = ""
    if image.has_transparency_data:
        image = image.convert("RGBA")
        alpha = np.asarray(image.getchannel("A"))
        if alpha.any() and not alpha.all():
            return Mask(alpha > 0, "read by its alpha channel")
        shows = "hides nothing" if alpha.any() else "hides everything"
        note = f"read by its colours, since its alpha channel {shows}"
        image = image.convert("RGB")
    values = np.nan_to_num(np.asarray(image))
    if lossy:
        note = "read as what is brighter than half, since JPEG does not keep 0 as 0"
    above = values > _HALF if lossy else values != 0
    return Mask(np.asarray(above.any(axis=2) if above.ndim == 3 else above), note)
