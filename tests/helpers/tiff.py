"""TIFF files of any number of bands, written by hand."""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BLACK_IS_ZERO, RGB = 1, 2
_KINDS = {"u": 1, "i": 2, "f": 3}
_LZW, _DEFLATE, _PACKBITS = 5, 8, 32773
_SHORTS = (258, 259, 262, 274, 277, 284, 317, 338, 339)


def tiff(
    values: NDArray[Any],
    photometric: int,
    *,
    extra: Sequence[int] | None = None,
    order: str = "<",
    compression: int = 1,
    predictor: int = 1,
    planar: bool = False,
    block: tuple[int, int] | None = None,
    tiled: bool = False,
    tags: dict[int, Sequence[int]] | None = None,
) -> bytes:
    """A TIFF file of values (h, w, n). ``block``: rows of a strip (and columns of a tile)."""
    height, width, bands = values.shape
    rows, columns = block or (height, width)
    columns = columns if tiled else width
    blocks = [
        _packed(part, order, compression, predictor)
        for plane in (np.split(values, bands, axis=2) if planar else [values])
        for part in _parts(plane, rows, columns, tiled)
    ]
    kind = _KINDS[values.dtype.kind]
    entries: dict[int, Sequence[int]] = {
        256: [width], 257: [height], 258: [values.dtype.itemsize * 8] * bands, 259: [compression],
        262: [photometric], 277: [bands], 284: [2 if planar else 1], 317: [predictor],
        339: [kind] * bands, **({338: extra} if extra is not None else {}), **(tags or {}),
    }  # fmt: skip
    if tiled:
        entries |= {322: [columns], 323: [rows]}
    else:
        entries |= {278: [rows]}
    return _file(entries, blocks, order, tiled)


def _parts(plane: NDArray[Any], rows: int, columns: int, tiled: bool) -> list[NDArray[Any]]:
    height, width, bands = plane.shape
    parts = []
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            part = plane[top : top + rows, left : left + columns]
            if tiled:
                whole = np.full((rows, columns, bands), 7, plane.dtype)
                whole[: part.shape[0], : part.shape[1]] = part
                part = whole
            parts.append(part)
    return parts


def _packed(part: NDArray[Any], order: str, compression: int, predictor: int) -> bytes:
    rows, columns, bands = part.shape
    item = part.dtype.itemsize
    if predictor == 3:
        # Most significant bytes first, all of a row together, then differences between bytes.
        big = np.ascontiguousarray(part).astype(part.dtype.newbyteorder(">")).view(np.uint8)
        planes = big.reshape(rows, columns * bands, item).transpose(0, 2, 1)
        stream = planes.reshape(rows, columns * item, bands)
        raw = _differences(stream).tobytes()
    else:
        if predictor == 2:
            part = _differences(np.ascontiguousarray(part).view(f"u{item}")).view(part.dtype)
        raw = part.astype(part.dtype.newbyteorder(order)).tobytes()
    if compression == _DEFLATE:
        return zlib.compress(raw)
    if compression in (_LZW, _PACKBITS):
        return _through_pillow(raw, rows, {_LZW: "tiff_lzw", _PACKBITS: "packbits"}[compression])
    return raw


def _differences(values: NDArray[Any]) -> NDArray[Any]:
    result = values.copy()
    result[:, 1:] -= values[:, :-1]
    return result


def _through_pillow(raw: bytes, rows: int, compression: str) -> bytes:
    image = Image.frombytes("L", (len(raw) // rows, rows), raw)
    stream = io.BytesIO()
    image.save(stream, "TIFF", compression=compression, tiffinfo={278: rows})
    saved = Image.open(stream)
    (start,), (length,) = saved.tag_v2[273], saved.tag_v2[279]
    return stream.getvalue()[start : start + length]


def _file(entries: dict[int, Sequence[int]], blocks: list[bytes], order: str, tiled: bool) -> bytes:
    offsets, lengths = (324, 325) if tiled else (273, 279)
    entries = {**entries, offsets: [0] * len(blocks), lengths: [len(b) for b in blocks]}

    def pack(tag: int, numbers: Sequence[int]) -> bytes:
        return struct.pack(f"{order}{len(numbers)}{'H' if tag in _SHORTS else 'I'}", *numbers)

    outside = 8 + 2 + 12 * len(entries) + 4
    start = outside + sum(len(p) + len(p) % 2 for p in map(pack, entries, entries.values()))
    places = np.cumsum([start, *(len(block) for block in blocks)])[:-1]
    entries[offsets] = [int(place) for place in places]
    directory, beyond = struct.pack(f"{order}H", len(entries)), b""
    for tag, numbers in sorted(entries.items()):
        packed = pack(tag, numbers)
        directory += struct.pack(f"{order}HHI", tag, 3 if tag in _SHORTS else 4, len(numbers))
        if len(packed) <= 4:
            directory += packed.ljust(4, b"\0")
        else:
            directory += struct.pack(f"{order}I", outside + len(beyond))
            beyond += packed + b"\0" * (len(packed) % 2)
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 8)
    whole = (head + directory + bytes(4) + beyond).ljust(start, b"\0")
    return whole + b"".join(blocks)
