"""A layer's integer queries and keys as few bytes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import LayerFactors, RelativeBias


def pack(layer: LayerFactors) -> bytes:
    """The integers of query, then key, as compressed bytes.

    0, -1, 1, -2, ... become 0, 1, 2, 3, ...; all low bytes stand before all high bytes, most of
    which are 0. Compressed with zlib.
    """
    return pack_integers(np.stack([layer.query, layer.key]))


def pack_integers(values: NDArray[np.int16]) -> bytes:
    """Integers as ``pack`` writes them."""
    folded = ((values << 1) ^ (values >> 15)).view(np.uint16)
    planes = np.stack([folded & 255, folded >> 8]).astype(np.uint8)
    return compress(planes.tobytes())


def pack_bias(bias: RelativeBias) -> bytes:
    """Its arrays one after the other, float32, compressed with zlib: many values are the same."""
    parts = (np.ascontiguousarray(part, "<f4").tobytes() for part in bias.arrays())
    return zlib.compress(b"".join(parts), 9)


def compress(data: bytes) -> bytes:
    """A zlib stream. The bytes are noise or zeros: only runs are looked for, which is quick."""
    stream = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
    return stream.compress(data) + stream.flush()
