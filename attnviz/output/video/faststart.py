"""The index of an MP4 file moved to its front, so that a browser plays it while it arrives."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = 1 << 20
_PARENTS = (b"moov", b"trak", b"mdia", b"minf", b"stbl")
_OFFSETS = {b"stco": ">I", b"co64": ">Q"}


def index_first(stream: BinaryIO) -> None:
    """Move the box ``moov`` in front of ``mdat``, in place; nothing where it already is there.

    ISO/IEC 14496-12: the offsets of chunks (``stco``, ``co64``) count from the start of the file,
    so they grow by the size of the index. An index beyond 4 GiB of data stays at the end.
    """
    boxes = {kind: (at, size) for kind, at, size in _file_boxes(stream)}
    if b"moov" not in boxes or b"mdat" not in boxes:
        return
    (begin, length), (data, _) = boxes[b"moov"], boxes[b"mdat"]
    end = stream.seek(0, 2)
    if begin < data or begin + length != end:
        return
    stream.seek(begin)
    index = bytearray(stream.read(length))
    try:
        _shift(index, 0, length, length)
    except struct.error:
        return
    for at in reversed(range(data, begin, _BLOCK)):
        stream.seek(at)
        block = stream.read(min(_BLOCK, begin - at))
        stream.seek(at + length)
        stream.write(block)
    stream.seek(data)
    stream.write(index)
    stream.seek(0, 2)


def _file_boxes(stream: BinaryIO) -> Iterator[tuple[bytes, int, int]]:
    at = stream.seek(0)
    while len(head := stream.read(16)) >= 8:
        size, kind = struct.unpack_from(">I4s", head)
        if size == 1 and len(head) == 16:
            size = struct.unpack_from(">Q", head, 8)[0]
        if size < 8:
            return
        yield kind, at, size
        at = stream.seek(at + size)


def _shift(index: bytearray, at: int, end: int, by: int) -> None:
    """Add ``by`` to every chunk offset in the boxes from ``at`` to ``end``."""
    while at + 8 <= end:
        size, kind = struct.unpack_from(">I4s", index, at)
        if size < 8:
            return
        if kind in _PARENTS:
            _shift(index, at + 8, at + size, by)
        elif form := _OFFSETS.get(kind):
            step = struct.calcsize(form)
            count = struct.unpack_from(">I", index, at + 12)[0]
            for place in range(at + 16, at + 16 + count * step, step):
                struct.pack_into(form, index, place, struct.unpack_from(form, index, place)[0] + by)
        at += size
