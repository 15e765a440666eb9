"""A file becomes an upright sRGB picture, or one ImageError that says why not.

The file is read once: what is hashed is what is decoded. The content decides the format, not the
suffix. Pillow's plug-ins are called directly instead of through ``Image.open``: the size is known
from the header and held against the caller's limit before anything is decoded, and Pillow's own
limit, a process-wide number, is neither needed nor touched. Safe in threads.
"""

from __future__ import annotations

import codecs
import importlib
import stat
import struct
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from PIL import ExifTags, Image

from attnviz.domain import RgbImage, Size, sha256_of
from attnviz.errors import ImageError
from attnviz.images.colour import to_srgb
from attnviz.images.formats import SUFFIXES, PlugIn, plug_in_for, suffix_fits
from attnviz.images.names import printable
from attnviz.images.quiet import quiet

if TYPE_CHECKING:
    from pathlib import Path

    from PIL.ImageFile import ImageFile as PillowFile

    from attnviz.domain import ByteArray, ImageFile

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF orientation: what turns the stored picture upright."""

_NOT_THIS_FORMAT = (SyntaxError, IndexError, TypeError, struct.error)
"""What a Pillow plug-in raises for a header that it cannot use."""

_DAMAGED_HINT = "copy or export the picture again"
_MOST_BYTES_A_PIXEL = 8


def read_image(file: ImageFile, *, max_pixels: int) -> RgbImage:
    """Read, check and decode one picture.

    Raises ImageError: missing, no regular file, empty, no known format, damaged, cut short, more
    than ``max_pixels`` pixels, or values without a known meaning.
    """
    name = printable(file.path)
    data = _read_bytes(file.path, name, max_pixels)
    try:
        with quiet():
            pixels, notes = _decode(data, file.path, name, max_pixels)
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(f"{name} does not fit into memory", "lower --max-pixels") from error
    except Image.DecompressionBombError as error:
        # Some plug-ins (TIFF, WebP, GIF) hold to Pillow's own limit as well.
        reason = f"{name} is larger than Pillow decodes in its format: {_reason(error)}"
        raise ImageError(reason, "save it as PNG or JPEG, or smaller") from error
    except Exception as error:
        # Decoders meet damage with any kind of error: struct, zlib, index, arithmetic, ...
        raise ImageError(f"{name} is damaged: {_reason(error)}", _DAMAGED_HINT) from error
    return RgbImage(file, pixels, sha256_of(data), notes)


def _read_bytes(path: Path, name: str, max_pixels: int) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ImageError(f"{name} is a folder, not a picture", "name it as an input instead")
        if not stat.S_ISREG(status.st_mode):
            raise ImageError(f"{name} is a pipe, socket or device", "save the picture to a file")
        if status.st_size > _MOST_BYTES_A_PIXEL * max_pixels:
            raise ImageError(
                f"{name} holds {status.st_size / 1e9:.1f} GB, more than a picture of "
                f"{max_pixels:,} pixels needs",
                "raise the limit with --max-pixels",
            )
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise ImageError(f"{name} cannot be read: {_reason(error)}", "check the path") from error
    if not data:
        raise ImageError(f"{name} is empty (0 bytes)", _DAMAGED_HINT)
    return data


def _decode(
    data: bytes, path: Path, name: str, max_pixels: int
) -> tuple[ByteArray, tuple[str, ...]]:
    image = _open(data, path, name)
    _check_size(Size(image.height, image.width), name, max_pixels)
    form = image.format or ""
    notes = _notes_on_the_file(image, form, path, data)
    image.load()
    _check_size(Size(image.height, image.width), name, max_pixels)
    turn = _UPRIGHT.get(_orientation(image))
    try:
        rgb, more = to_srgb(image)
    except ImageError as error:
        raise ImageError(f"{name} {error.message}", error.hint) from error
    upright = rgb if turn is None else rgb.transpose(turn)
    return np.asarray(upright), (*notes, *more)


def _open(data: bytes, path: Path, name: str) -> PillowFile:
    """The picture with its header read and nothing decoded."""
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
                return factory(BytesIO(data), "")
            except _NOT_THIS_FORMAT as error:
                # Signatures overlap, HEIC with AVIF and words with PPM: go on looking.
                damaged = damaged or (form, error)
    plug_in = plug_in_for(data)
    if plug_in is not None:
        return _open_with_plug_in(plug_in, data, name)
    words = _words_of_a_text(data)
    if damaged is not None and (words is None or suffix in SUFFIXES[damaged[0]]):
        form, cause = damaged
        message = f"{name} is a damaged {form} file: {_reason(cause)}"
        raise ImageError(message, _DAMAGED_HINT) from cause
    what = "no picture of a known format"
    if words is not None:
        what = f"text, not a picture (it begins with {words[:24]!r})"
    raise ImageError(f"{name} is {what}", "give a JPEG, PNG, TIFF or WebP file")


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


def _check_size(size: Size, name: str, max_pixels: int) -> None:
    pixels = size.height * size.width
    if pixels < 1:
        raise ImageError(f"{name} has no pixels ({size})", _DAMAGED_HINT)
    if pixels > max_pixels:
        raise ImageError(
            f"{name} is {size} pixels large, {pixels:,} in all and more than {max_pixels:,}",
            f"allow it with --max-pixels {pixels}",
        )


def _notes_on_the_file(image: PillowFile, form: str, path: Path, data: bytes) -> tuple[str, ...]:
    notes = []
    if not suffix_fits(path.suffix, form):
        notes.append(f"{form} content under the suffix {printable(path.suffix)}")
    frames = _frame_count(image, form, data)
    if frames > 1:
        notes.append(f"first of {frames} frames")
    return tuple(notes)


def _frame_count(image: PillowFile, form: str, data: bytes) -> int:
    """How many frames the file holds; damage behind the first frame does not count."""
    if form not in ("GIF", "TIFF"):
        return int(getattr(image, "n_frames", 1))
    # These count by seeking through the file, which a damaged one survives in no known state.
    factory, _ = Image.OPEN[form]
    try:
        return int(getattr(factory(BytesIO(data), ""), "n_frames", 1))
    except Exception:  # noqa: BLE001 - as many kinds as there are kinds of damage
        return 1


def _orientation(image: PillowFile) -> int:
    """EXIF orientation, 1 where it is missing or its block is damaged. Asked after loading.

    Pillow turns TIFF upright while loading, and the HEIC plug-in does; both then report 1.
    """
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # noqa: BLE001 - damaged metadata does not spoil the pixels
        return 1


def _words_of_a_text(data: bytes) -> str | None:
    """The start of a text on one line, or None where the bytes are no text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        # Not final: the cut may go through a character.
        text = decoder.decode(data[:512], final=len(data) <= 512)
    except UnicodeDecodeError:
        return None
    words = " ".join(text.split())
    return words if words.isprintable() else None


def _reason(error: BaseException) -> str:
    """The error in a few words on one line, without numbers and paths that Python adds."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return printable(" ".join(text.split()).rstrip(".")) or type(error).__name__
