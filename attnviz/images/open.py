"""The bytes of a file, and the image that they hold with its header read and nothing decoded.

The content decides the format, not the suffix. Pillow's plug-ins are called directly instead of
through ``Image.open``: the size is known from the header and compared with the caller's limit
before anything is decoded, and Pillow's own limit, a process-wide number, is neither needed nor
touched.
"""

from __future__ import annotations

import codecs
import importlib
import stat
import struct
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image

from attnviz.domain import Size
from attnviz.errors import ImageError
from attnviz.images import png
from attnviz.images.formats import SUFFIXES, PlugIn, plug_in_for
from attnviz.images.jpeg import keep_inks, without_metadata
from attnviz.images.names import printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from PIL.ImageFile import ImageFile as PillowFile

NOT_THIS_FORMAT = (SyntaxError, IndexError, TypeError, struct.error)
"""What a Pillow plug-in raises for a header that it cannot use."""

DAMAGED_HINT = "copy or export the image again"
_MOST_BYTES_A_PIXEL = 8
_JPEGS = ("JPEG", "MPO")


class Opened(NamedTuple):
    """An image whose header is read, the bytes that it will be decoded from, and notes."""

    image: PillowFile
    data: bytes
    notes: tuple[str, ...]


def read_bytes(path: Path, name: str, max_pixels: int) -> bytes:
    """All of a regular file that is not larger than an image of ``max_pixels`` can be.

    Raises:
        ImageError: There is none, it is empty, or it is too large.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ImageError(f"{name} is a folder, not an image", "name it as an input instead")
        if not stat.S_ISREG(status.st_mode):
            raise ImageError(f"{name} is a pipe, socket or device", "save the image to a file")
        if status.st_size > _MOST_BYTES_A_PIXEL * max_pixels:
            raise ImageError(
                f"{name} holds {status.st_size / 1e9:.1f} GB, more than an image of "
                f"{max_pixels:,} pixels needs",
                "raise the limit with --max-pixels",
            )
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise ImageError(f"{name} cannot be read: {reason(error)}", "check the path") from error
    if not data:
        raise ImageError(f"{name} is empty (0 bytes)", DAMAGED_HINT)
    return data


def open_image(data: bytes, path: Path, name: str) -> Opened:
    """The image of a file with its header read and nothing decoded.

    Raises:
        ImageError: No known format, a damaged header, or a format that needs a plug-in.
    """
    cleaned = png.clean(data) if data.startswith(png.SIGNATURE) else png.CleanPng(data)
    image = _open(cleaned.data, path, name)
    if cleaned.profile is not None:
        image.info["icc_profile"] = cleaned.profile
    if image.format in _JPEGS:
        keep_inks(image)
    note = f"its colour profile holds more than {png.PROFILE_BYTES >> 20} MB and was ignored"
    return Opened(image, cleaned.data, (note,) if cleaned.profile_too_large else ())


def _open(data: bytes, path: Path, name: str) -> PillowFile:
    Image.init()
    suffix = path.suffix.lower()
    damaged: tuple[str, Exception] | None = None
    for form, suffixes in SUFFIXES.items():
        factory, accept = Image.OPEN.get(form, (None, None))
        if factory is None:
            continue
        # TGA has no signature: only a suffix can vouch for it. Some plug-ins unpack all 16 bytes.
        matches = suffix in suffixes if accept is None else accept(data[:16].ljust(16, b"\0"))
        if isinstance(matches, str):
            raise ImageError(f"{name}: this Pillow cannot read {form}", "update the pillow package")
        if matches:
            try:
                return _header(form, factory, data)
            except NOT_THIS_FORMAT as error:
                # Signatures overlap, HEIC with AVIF and words with PPM: go on looking.
                damaged = damaged or (form, error)
    plug_in = plug_in_for(data)
    if plug_in is not None:
        return _open_with_plug_in(plug_in, data, name)
    words = _words_of_a_text(data)
    if damaged is not None and (words is None or suffix in SUFFIXES[damaged[0]]):
        form, cause = damaged
        message = f"{name} is a damaged {form} file: {reason(cause)}"
        raise ImageError(message, DAMAGED_HINT) from cause
    what = "not an image of a known format"
    if words is not None:
        what = f"text, not an image (it begins with {words[:24]!r})"
    raise ImageError(f"{name} is {what}", "give a JPEG, PNG, TIFF or WebP file")


def _header(form: str, factory: Callable[[BytesIO, str], PillowFile], data: bytes) -> PillowFile:
    try:
        return factory(BytesIO(data), "")
    except NOT_THIS_FORMAT:
        if form not in _JPEGS:
            raise
    # Only pixels decide whether a file is damaged.
    return factory(BytesIO(without_metadata(data)), "")


def _open_with_plug_in(plug_in: PlugIn, data: bytes, name: str) -> PillowFile:
    try:
        module = importlib.import_module(plug_in.module)
    except ImportError as error:
        raise ImageError(
            f"{name}: {plug_in.label} needs the {plug_in.package} plug-in",
            f"pip install {plug_in.package}",
        ) from error
    if plug_in.opener:
        getattr(module, plug_in.opener)()
    factory, _ = Image.OPEN[plug_in.pillow_format]
    return factory(BytesIO(data), "")


def check_pixels(size: Size, name: str, max_pixels: int) -> None:
    """Raise ImageError for an image without pixels, or of more than ``max_pixels``."""
    pixels = size.height * size.width
    if pixels < 1:
        raise ImageError(f"{name} has no pixels ({size})", DAMAGED_HINT)
    if pixels > max_pixels:
        raise ImageError(
            f"{name} is {size} pixels large, {pixels:,} in all and more than {max_pixels:,}",
            f"allow it with --max-pixels {pixels}",
        )


def _words_of_a_text(data: bytes) -> str | None:
    """The start of a text on one line, or None where the bytes are not text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        # Not final: the cut may go through a character.
        text = decoder.decode(data[:512], final=len(data) <= 512)
    except UnicodeDecodeError:
        return None
    words = " ".join(text.split())
    return words if words.isprintable() else None


def reason(error: BaseException) -> str:
    """The error in a few words on one line, without numbers and paths that Python adds."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return printable(" ".join(text.split()).rstrip(".")) or type(error).__name__
