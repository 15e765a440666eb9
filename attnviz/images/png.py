"""PNG files as Pillow needs them: without the metadata that it refuses, and 16 bits as 16 bits.

To Pillow, a colour profile or text of more than 1 MB, or metadata with a wrong checksum, makes a
file damaged. Here only pixels decide: such chunks are removed before Pillow sees the file. Pillow
also reads 16-bit colours as 8 bits.
"""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from PIL.ImageFile import ImageFile as PillowFile

SIGNATURE = b"\x89PNG\r\n\x1a\n"

PROFILE_BYTES = 32 << 20
"""Largest colour profile that is followed; a larger one is ignored."""

_TEXT_BYTES = 1 << 20
"""Pillow's own limit of one text, and of a profile."""
_ALL_TEXT_BYTES = 16 << 20

_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_LEAST_BYTES = {b"gAMA": 4, b"cHRM": 32, b"sRGB": 1, b"pHYs": 9, b"acTL": 8, b"fcTL": 26}
_OF_PIXELS = frozenset({b"tRNS", b"fdAT"})
"""Chunks that are optional in the format, and without which the pixels would differ."""

_WIDE_MODES = {"RGB;16B": "RGB;16L", "RGBA;16B": "RGBA;16L"}
"""Pillow's names of 16-bit pixels: of those that give the high byte, those that give the low."""
_GREY_WITH_ALPHA = "LA;16B"


class _Chunk(NamedTuple):
    """A chunk of a PNG file: its type, and where it and its content begin and end."""

    kind: bytes
    start: int
    content: int
    content_end: int
    end: int


class CleanPng(NamedTuple):
    """A PNG file that Pillow accepts, and what was removed from it.

    ``profile``: a colour profile that Pillow would not read. ``profile_too_large``: it holds more
    than ``PROFILE_BYTES``.
    """

    data: bytes
    profile: bytes | None = None
    profile_too_large: bool = False


def clean(data: bytes) -> CleanPng:
    """The file without the metadata that Pillow would refuse. The same bytes if there is none.

    Memory: a profile and one text at a time are decompressed, up to their limits.
    """
    profile: bytes | None = None
    too_large = False
    text_left = _ALL_TEXT_BYTES
    kept: list[bytes] = []
    copied = 0
    view = memoryview(data)
    for chunk in _chunks(data):
        content = view[chunk.content : chunk.content_end]
        if not chunk.kind[:1].islower() or chunk.kind in _OF_PIXELS:
            continue
        if chunk.kind == b"iCCP" and _is_intact(data, chunk):
            unpacked = _profile(bytes(content))
            if unpacked is not None and len(unpacked) <= _TEXT_BYTES:
                continue
            too_large = unpacked is not None and len(unpacked) > PROFILE_BYTES
            profile = None if too_large else unpacked
        elif chunk.kind in _TEXTS and _is_intact(data, chunk):
            small = len(content) <= _TEXT_BYTES
            size = _text_size(chunk.kind, bytes(content)) if small else None
            if size is not None and size <= text_left:
                text_left -= size
                continue
        elif len(content) >= _LEAST_BYTES.get(chunk.kind, 0) and _is_intact(data, chunk):
            continue
        kept.append(data[copied : chunk.start])
        copied = chunk.end
    if not kept:
        return CleanPng(data)
    return CleanPng(b"".join([*kept, data[copied:]]), profile, too_large)


def _chunks(data: bytes) -> Iterator[_Chunk]:
    """Every whole chunk; a file that is cut ends before the cut."""
    start = len(SIGNATURE)
    while start + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, start)
        content_end = start + 8 + length
        if content_end + 4 > len(data) or kind == b"IEND":
            return
        yield _Chunk(kind, start, start + 8, content_end, content_end + 4)
        start = content_end + 4


def _is_intact(data: bytes, chunk: _Chunk) -> bool:
    expected = int.from_bytes(data[chunk.content_end : chunk.end], "big")
    return expected == zlib.crc32(memoryview(data)[chunk.start + 4 : chunk.content_end])


def _profile(content: bytes) -> bytes | None:
    """A colour profile, at most one byte more than ``PROFILE_BYTES``; None if it is damaged."""
    _, separator, rest = content.partition(b"\0")
    if not separator or rest[:1] != b"\0":
        return None
    try:
        return zlib.decompressobj().decompress(rest[1:], PROFILE_BYTES + 1)
    except zlib.error:
        return None


def _text_size(kind: bytes, content: bytes) -> int | None:
    """The bytes of a text without its compression; None where Pillow would not take it."""
    _, _, text = content.partition(b"\0")
    if kind == b"tEXt":
        return len(text)
    if kind == b"zTXt":
        if text[:1] not in (b"", b"\0"):
            return None
        packed = text[1:]
    else:
        if len(text) < 2 or text[:1] == b"\0":
            return len(text)
        packed = text[2:].split(b"\0", 2)[-1]
    try:
        unpacker = zlib.decompressobj()
        size = len(unpacker.decompress(packed, _TEXT_BYTES))
    except zlib.error:
        return len(packed)
    return None if unpacker.unconsumed_tail else size


def is_wide(image: PillowFile) -> bool:
    """Whether a PNG file, with its header read, holds 16 bits a channel that Pillow would halve."""
    mode = str(image.tile[0].args) if image.tile else ""
    return mode in (*_WIDE_MODES, _GREY_WITH_ALPHA)


def wide_values(image: PillowFile, data: bytes) -> NDArray[np.uint16]:
    """The pixels of such a file, (height, width, channels) uint16: grey and alpha, RGB, or RGBA.

    ``image``: the header of ``data``; it is decoded here.
    """
    mode = image.tile[0].args
    factory, _ = Image.OPEN["PNG"]
    if mode == _GREY_WITH_ALPHA:
        # As many bits as 8-bit RGBA: under that header, each byte comes out as it is.
        as_rgba = factory(BytesIO(_with_colour_type(data, depth=8, colour_type=6)), "")
        as_rgba.load()
        return np.asarray(as_rgba).view(">u2").astype(np.uint16)
    low = factory(BytesIO(data), "")
    low.tile = [tile._replace(args=_WIDE_MODES[str(mode)]) for tile in low.tile]
    low.load()
    image.load()
    values = np.asarray(image).astype(np.uint16)
    values <<= 8
    values |= np.asarray(low)
    return values


def _with_colour_type(data: bytes, *, depth: int, colour_type: int) -> bytes:
    start = len(SIGNATURE) + 4
    header = bytearray(data[start : start + 17])
    header[12], header[13] = depth, colour_type
    checksum = struct.pack(">I", zlib.crc32(header))
    return b"".join([data[:start], header, checksum, data[start + 21 :]])
