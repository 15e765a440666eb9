"""The record in an animated WebP file: its XMP chunk, which FFmpeg does not write."""

from __future__ import annotations

import struct
from typing import BinaryIO

_XMP_FLAG = 0x04


def add_record(stream: BinaryIO, text: str) -> None:
    """Append the record to a WebP file that begins with a VP8X chunk, as every animation does.

    Google's container specification: the flag of XMP in VP8X, the chunk ``XMP `` behind the frames,
    padded to an even size, and the size of all behind the first eight bytes.
    """
    stream.seek(0)
    head = stream.read(21)
    if head[8:16] != b"WEBPVP8X":
        return
    stream.seek(20)
    stream.write(bytes([head[20] | _XMP_FLAG]))
    data = text.encode()
    stream.seek(0, 2)
    stream.write(b"XMP " + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2))
    size = stream.tell() - 8
    stream.seek(4)
    stream.write(struct.pack("<I", size))
    stream.seek(0, 2)
