"""The record in a video's container, and in the XMP chunk of an animated WebP file."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

from attnviz.output.record import KEY


def from_film(stream: BinaryIO) -> str | None:
    """The record in the metadata of an MP4 or WebM file; None without one, or without PyAV."""
    try:
        import av
        from av.error import FFmpegError
    except ImportError:
        return None
    try:
        container: Any = av.open(stream, metadata_errors="replace")
        with container:
            # Matroska writes the names of its tags in capitals.
            found = {name.lower(): text for name, text in container.metadata.items()}
    except FFmpegError:
        return None
    text = found.get(KEY.lower())
    return None if text is None else str(text)


def from_webp(stream: BinaryIO) -> str | None:
    """The record in the XMP chunk of a WebP file. Only the heads of its chunks are read."""
    if stream.read(12)[8:] != b"WEBP":
        return None
    while len(head := stream.read(8)) == 8:
        kind, length = struct.unpack("<4sI", head)
        if kind == b"XMP ":
            return stream.read(length).decode()
        stream.seek(length + length % 2, 1)
    return None
