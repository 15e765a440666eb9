"""A file becomes an upright sRGB image, or one ImageError that says why not.

The file is read once: what is hashed is what is decoded. Safe in threads.
"""

from __future__ import annotations

from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from attnviz.domain import RgbImage, Size, sha256_of
from attnviz.errors import ImageError
from attnviz.images.bands import (
    bands_of_image,
    bands_of_png,
    bands_of_tiff,
    describe,
    says_alpha,
    without_unnamed,
)
from attnviz.images.colour import bands_to_srgb, to_srgb
from attnviz.images.formats import suffix_fits
from attnviz.images.names import printable
from attnviz.images.open import (
    DAMAGED_HINT,
    NOT_THIS_FORMAT,
    Opened,
    check_pixels,
    open_image,
    read_bytes,
    reason,
)
from attnviz.images.png import is_wide
from attnviz.images.quiet import quiet
from attnviz.images.tiff import tiff_layout
from attnviz.images.upright import orientation_of, upright

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from PIL.ImageFile import ImageFile as PillowFile

    from attnviz.domain import ByteArray, ImageFile
    from attnviz.domain.requests import BandChoice, InputRequest, ValueRange
    from attnviz.images.tiff import TiffLayout

_MULTI_BAND_HINT = "export it as RGB, or with 8 or 16 bits a band and deflate or no compression"


def read_input(file: ImageFile, inputs: InputRequest) -> RgbImage:
    """Read one image as the options of a request say; errors as ``read_image``."""
    return read_image(
        file, max_pixels=inputs.max_pixels, bands=inputs.bands, value_range=inputs.value_range
    )


def read_image(
    file: ImageFile,
    *,
    max_pixels: int,
    bands: BandChoice | None = None,
    value_range: ValueRange | None = None,
) -> RgbImage:
    """Read, check and decode one image.

    ``bands``: which bands of the file, from 1, are red, green and blue; None: what the file says.
    ``value_range``: the values that become 0 and 255, or "auto"; None: the rules of ``values.py``.

    Raises ImageError: missing, not a regular file, empty, no known format, damaged, cut short, more
    than ``max_pixels`` pixels, bands that nobody named, or values without a known meaning.
    """
    name = printable(file.path)
    data = read_bytes(file.path, name, max_pixels)
    try:
        with quiet():
            pixels, notes = _decode(data, file.path, name, max_pixels, bands, value_range)
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(f"{name} does not fit into memory", "lower --max-pixels") from error
    except Image.DecompressionBombError as error:
        # Some plug-ins (TIFF, WebP, GIF) hold to Pillow's own limit as well.
        message = f"{name} is larger than Pillow decodes in its format: {reason(error)}"
        raise ImageError(message, "save it as PNG or JPEG, or smaller") from error
    except Exception as error:
        # Decoders meet damage with any kind of error: struct, zlib, index, arithmetic, ...
        raise ImageError(f"{name} is damaged: {reason(error)}", DAMAGED_HINT) from error
    return RgbImage(file, pixels, sha256_of(data), notes)


def _decode(
    data: bytes,
    path: Path,
    name: str,
    max_pixels: int,
    choice: BandChoice | None,
    value_range: ValueRange | None,
) -> tuple[ByteArray, tuple[str, ...]]:
    layout = tiff_layout(data)
    if layout is not None:
        check_pixels(layout.size, name, max_pixels)
        with _naming(name):
            numbers = bands_of_tiff(layout, data, choice)
            if numbers is not None:
                rgb, more = bands_to_srgb(numbers, value_range)
                notes = _notes_on_the_file("TIFF", _frames_by_seeking("TIFF", data), path)
                return np.asarray(upright(rgb, layout.orientation)), (*notes, *more)
    opened = _open(data, path, name, layout)
    image = opened.image
    check_pixels(Size(image.height, image.width), name, max_pixels)
    form = image.format or ""
    notes = (*_notes_on_the_file(form, _frame_count(image, form, data), path), *opened.notes)
    with _naming(name):
        rgb, more = decoded_rgb(opened, layout, choice, value_range)
    check_pixels(Size(rgb.height, rgb.width), name, max_pixels)
    return np.asarray(upright(rgb, orientation_of(image))), (*notes, *more)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Errors about the content of a file, with its name in front."""
    try:
        yield
    except ImageError as error:
        raise ImageError(f"{name} {error.message}", error.hint) from error


def _open(data: bytes, path: Path, name: str, layout: TiffLayout | None) -> Opened:
    try:
        return open_image(data, path, name)
    except ImageError as error:
        if layout is None or not isinstance(error.__cause__, NOT_THIS_FORMAT):
            raise
        message = f"{name} has {describe(layout)}, in a form that cannot be read"
        raise ImageError(message, _MULTI_BAND_HINT) from error


def decoded_rgb(
    opened: Opened,
    layout: TiffLayout | None,
    choice: BandChoice | None,
    value_range: ValueRange | None,
) -> tuple[Image.Image, tuple[str, ...]]:
    """An opened image as RGB, and notes about what was done to it."""
    image = opened.image
    form = image.format or ""
    if form == "PNG" and is_wide(image):
        return bands_to_srgb(bands_of_png(image, opened.data, choice), value_range)
    image.load()
    named = says_alpha(form, opened.data, layout)
    if choice or value_range or image.mode.startswith("I") or image.mode == "F":
        top = (1 << layout.bits[0]) - 1 if layout and layout.bits[0] < 16 else 0
        bands = bands_of_image(image, choice, says_alpha=named, top=top)
        return bands_to_srgb(bands, value_range)
    plain, left_out = (image, ()) if named else without_unnamed(image)
    rgb, notes = to_srgb(plain)
    return rgb, (*left_out, *notes)


def _notes_on_the_file(form: str, frames: int, path: Path) -> tuple[str, ...]:
    notes = []
    if not suffix_fits(path.suffix, form):
        notes.append(f"{form} content under the suffix {printable(path.suffix)}")
    if frames > 1:
        notes.append(f"first of {frames} frames")
    return tuple(notes)


def _frame_count(image: PillowFile, form: str, data: bytes) -> int:
    """How many frames the file holds; damage behind the first frame does not count."""
    if form not in ("GIF", "TIFF"):
        return int(getattr(image, "n_frames", 1))
    return _frames_by_seeking(form, data)


def _frames_by_seeking(form: str, data: bytes) -> int:
    # The image that is decoded is not the one that seeks: a damaged one survives in no known state.
    Image.init()
    factory, _ = Image.OPEN[form]
    try:
        return int(getattr(factory(BytesIO(data), ""), "n_frames", 1))
    except Exception:  # noqa: BLE001 - as many kinds as there are kinds of damage
        return 1
