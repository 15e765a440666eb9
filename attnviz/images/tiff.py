"""What a TIFF file says of its bands, and bands as the numbers that the file holds.

Pillow reads the layouts that a screen shows: it drops the low byte of 16-bit colours, takes any
fourth band for alpha, and calls other numbers of bands damaged. Satellites, microscopes and
cameras write those, so they are read here: strips and tiles, bands interleaved or one after the
other, 8 to 64 bits, either byte order, with the compressions that these programs use.

Source: TIFF revision 6.0; the predictor of floats as in Adobe's technical note 3.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from attnviz.domain import Size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_BIG = (b"II+\0", b"MM\0+")

WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, CMYK = 0, 1, 2, 3, 5
_COLOUR_BANDS = {WHITE_IS_ZERO: 1, BLACK_IS_ZERO: 1, RGB: 3, PALETTE: 1, 4: 1, CMYK: 4, 6: 3, 8: 3}
"""Bands that hold the colour, by PhotometricInterpretation."""

_PREMULTIPLIED = 1
_ALPHA_MARKS = (_PREMULTIPLIED, 2, 999)
"""ExtraSamples that say alpha; 999 is what Corel Draw writes."""

_NONE, _DEFLATE = 1, (8, 32946)
_THROUGH_LIBTIFF = (5, 32773, 34925, 50000)
"""LZW, PackBits, LZMA, Zstandard: whatever packs bytes regardless of what they mean."""

_LARGE_TILE = 1 << 22
"""Pixels that a tile may have however small the image is."""

_KINDS = {1: "u", 2: "i", 3: "f", 4: "u"}
_BITS = {"u": (8, 16, 32, 64), "i": (8, 16, 32, 64), "f": (16, 32, 64)}


@dataclass(frozen=True, kw_only=True)
class TiffLayout:
    """How the first image of a TIFF file is stored.

    ``kind``: numpy's letter of the numbers (u, i, f), or "" where the bands differ. ``bits``: of
    each band. ``alpha``: the band, from 0, that the file calls alpha. ``block``: a strip or a tile.
    """

    size: Size
    order: str
    kind: str
    bits: tuple[int, ...]
    photometric: int
    alpha: int | None
    premultiplied: bool
    planar: bool
    tiled: bool
    compression: int
    predictor: int
    block: Size
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    orientation: int
    profile: bytes | None

    @property
    def bands(self) -> int:
        """Bands of every kind, alpha included."""
        return len(self.bits)

    @property
    def colour_bands(self) -> int:
        """Bands that hold the colour, by what the file says."""
        return _COLOUR_BANDS.get(self.photometric, self.bands)

    @property
    def unnamed(self) -> int:
        """Bands that are neither colour nor alpha by what the file says."""
        return self.bands - self.colour_bands - (self.alpha is not None)

    @property
    def is_numeric(self) -> bool:
        """Whether ``read_bands`` can read it: grey or colour values in a supported packing."""
        packed = self.compression in (_NONE, *_DEFLATE, *_THROUGH_LIBTIFF)
        same = len(set(self.bits)) == 1 and self.bits[0] in _BITS.get(self.kind, ())
        plain = self.photometric in (WHITE_IS_ZERO, BLACK_IS_ZERO, RGB)
        return packed and same and plain and self.predictor in (1, 2, 3)


def tiff_layout(data: bytes) -> TiffLayout | None:
    """The layout of the first image; None where the bytes are not a TIFF file, or a damaged one."""
    if data[:4] not in _MAGIC:
        return None
    try:
        return _layout(data)
    except Exception:  # noqa: BLE001 - as many kinds as there are kinds of damage
        return None


def _layout(data: bytes) -> TiffLayout:
    big = data[:4] in _BIG
    order = "<" if data[:2] == b"II" else ">"
    header = data[: 16 if big else 8]
    (start,) = struct.unpack_from(f"{order}{'Q' if big else 'I'}", header, 8 if big else 4)
    tags = ImageFileDirectory_v2(header)
    stream = BytesIO(data)
    stream.seek(start)
    tags.load(stream)
    height, width = int(tags[257]), int(tags[256])
    bands = int(tags.get(277, 1))
    if not 1 <= bands <= 65535:
        raise ValueError("no bands")
    bits = _of_each_band(tags.get(258, (1,)), bands)
    kinds = {_KINDS.get(kind, "") for kind in _of_each_band(tags.get(339, (1,)), bands)}
    photometric = int(tags.get(262, 0))
    extra = _numbers(tags.get(338, ()))
    colours = bands - len(extra)
    alpha = next((colours + n for n, mark in enumerate(extra) if mark in _ALPHA_MARKS), None)
    tiled = 324 in tags
    block = Size(int(tags.get(278, height)), width)
    block = Size(int(tags[323]), int(tags[322])) if tiled else block
    return TiffLayout(
        size=Size(height, width),
        order=order,
        kind=kinds.pop() if len(kinds) == 1 else "",
        bits=bits,
        photometric=photometric,
        alpha=alpha if alpha is not None and alpha >= 1 else None,
        premultiplied=alpha is not None and extra[alpha - colours] == _PREMULTIPLIED,
        planar=tags.get(284, 1) == 2,
        tiled=tiled,
        compression=int(tags.get(259, 1)),
        predictor=int(tags.get(317, 1)),
        block=block if tiled else Size(min(block.height, height), width),
        offsets=_numbers(tags[324 if tiled else 273]),
        lengths=_numbers(tags[325 if tiled else 279]),
        orientation=int(tags.get(274, 1)),
        profile=tags.get(34675),
    )


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(int(each) for each in (value if isinstance(value, tuple) else (value,)))


def _of_each_band(value: Any, bands: int) -> tuple[int, ...]:
    numbers = _numbers(value)
    each = numbers * bands if len(numbers) == 1 else numbers[:bands]
    if len(each) != bands:
        raise ValueError("fewer entries than bands")
    return each


def read_bands(layout: TiffLayout, data: bytes, chosen: Sequence[int]) -> NDArray[Any]:
    """Some bands, counted from 0, as the file holds them: (height, width, len(chosen)).

    ``layout`` must be numeric. Memory: the result and one strip or tile at a time.

    Raises:
        ValueError: The file is cut, or a strip or tile does not hold what it should.
    """
    height, width = layout.size
    dtype = np.dtype(f"{layout.kind}{layout.bits[0] // 8}")
    values = np.empty((height, width, len(chosen)), dtype)
    wanted = list(chosen)
    for number, (plane, top, left) in enumerate(_blocks(layout)):
        if layout.planar and plane not in wanted:
            continue
        block = _read_block(layout, data, number, top)
        bottom, right = min(top + block.shape[0], height), min(left + block.shape[1], width)
        inside = block[: bottom - top, : right - left]
        if layout.planar:
            for index in (n for n, band in enumerate(wanted) if band == plane):
                values[top:bottom, left:right, index] = inside[:, :, 0]
        else:
            values[top:bottom, left:right] = inside[:, :, wanted]
    return values


def _blocks(layout: TiffLayout) -> Iterator[tuple[int, int, int]]:
    """Plane, top and left of every strip or tile, in the order in which the file lists them."""
    area = layout.block.height * layout.block.width
    if not 1 <= area <= max(4 * layout.size.height * layout.size.width, _LARGE_TILE):
        raise ValueError("strips or tiles of an impossible size")
    for plane in range(layout.bands if layout.planar else 1):
        for top in range(0, layout.size.height, layout.block.height):
            for left in range(0, layout.size.width, layout.block.width):
                yield plane, top, left


def _read_block(layout: TiffLayout, data: bytes, number: int, top: int) -> NDArray[Any]:
    """One strip or tile, (rows, columns, bands or 1), in the byte order of this machine."""
    rows, columns = layout.block
    if not layout.tiled:
        rows = min(rows, layout.size.height - top)
    bands = 1 if layout.planar else layout.bands
    item = layout.bits[0] // 8
    if number >= min(len(layout.offsets), len(layout.lengths)):
        raise ValueError("a strip or tile is missing")
    start = layout.offsets[number]
    packed = data[start : start + layout.lengths[number]]
    row_bytes = columns * bands * item
    raw = _unpacked(packed, layout.compression, rows, row_bytes)
    if len(raw) < rows * row_bytes:
        raise ValueError(
            f"the file is cut: {len(raw):,} bytes where a strip or tile has {rows * row_bytes:,}"
        )
    as_bytes = np.frombuffer(raw, np.uint8, rows * row_bytes).reshape(rows, row_bytes)
    if layout.predictor == 3:
        return _without_float_predictor(as_bytes, columns, bands, item)
    stored = as_bytes.view(f"{layout.order}{layout.kind}{item}").reshape(rows, columns, bands)
    block: NDArray[Any] = stored.astype(stored.dtype.newbyteorder("="), copy=False)
    if layout.predictor == 2:
        # Sums run over, as the differences did.
        unsigned = block.view(f"u{item}")
        block = np.add.accumulate(unsigned, axis=1, dtype=unsigned.dtype).view(block.dtype)
    return block


def _unpacked(packed: bytes, compression: int, rows: int, row_bytes: int) -> bytes:
    if compression == _NONE:
        return packed
    if compression in _DEFLATE:
        return zlib.decompressobj().decompress(packed, rows * row_bytes)
    # libtiff unpacks bytes; as 8-bit grey they come out as they are.
    factory, _ = Image.OPEN["TIFF"]
    image = factory(BytesIO(_grey_tiff(packed, compression, rows, row_bytes)), "")
    image.load()
    return bytes(image.tobytes())


def _grey_tiff(packed: bytes, compression: int, height: int, width: int) -> bytes:
    """A TIFF file of one strip of 8-bit grey."""
    start = 8 + 2 + 9 * 12 + 4
    entries = [
        *((256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, compression), (262, 3, 1)),
        *((273, 4, start), (277, 3, 1), (278, 4, height), (279, 4, len(packed))),
    ]
    directory = b"".join(
        struct.pack("<HHI", tag, kind, 1) + struct.pack("<I", value) for tag, kind, value in entries
    )
    head = b"II*\0" + struct.pack("<IH", 8, len(entries))
    return b"".join([head, directory, bytes(4), packed])


def _without_float_predictor(
    rows: NDArray[np.uint8], columns: int, bands: int, item: int
) -> NDArray[Any]:
    """Floats whose bytes were sorted by significance in each row, and then differenced."""
    count = len(rows)
    steps = rows.reshape(count, columns * item, bands)
    summed = np.add.accumulate(steps, axis=1, dtype=np.uint8)
    planes = summed.reshape(count, item, columns * bands)
    floats = np.ascontiguousarray(planes.transpose(0, 2, 1)).view(f">f{item}")
    return floats.astype(f"=f{item}").reshape(count, columns, bands)
