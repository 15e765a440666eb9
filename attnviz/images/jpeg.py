"""JPEG files as Pillow needs them: no metadata that it stumbles over, inks as they are meant."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile as PillowFile

_START_OF_SCAN = 0xDA
_ADOBE = 0xEE
_ADOBE_BYTES = 14
_ALONE = (0x01, *range(0xD0, 0xD9))
"""Markers without content."""


def without_metadata(data: bytes) -> bytes:
    """The file without comments and application segments, but for Adobe's, which names the colours.

    A file that is cut, or is not a JPEG file, comes back as it is from there on.
    """
    kept = [data[:2]]
    start = 2
    while start + 4 <= len(data) and data[start] == 0xFF:
        marker = data[start + 1]
        if marker == _START_OF_SCAN:
            break
        if marker == 0xFF or marker in _ALONE:
            end = start + (1 if marker == 0xFF else 2)
        else:
            (length,) = struct.unpack_from(">H", data, start + 2)
            end = start + 2 + length
        metadata = 0xE0 <= marker <= 0xEF or marker == 0xFE
        adobe = marker == _ADOBE and end - start >= _ADOBE_BYTES
        if not metadata or adobe:
            kept.append(data[start:end])
        start = end
    return b"".join([*kept, data[start:]])


def keep_inks(image: PillowFile) -> None:
    """Read the inks of a CMYK file as they are stored, unless Adobe's marker says inverted.

    Pillow takes all of them for Adobe's.
    """
    if image.mode == "CMYK" and "adobe" not in image.info:
        image.tile = [tile._replace(args=("CMYK", "")) for tile in image.tile]
