"""Queries and keys as few bytes, without a change of the attention that they give.

softmax(q k^T) stays the same when one vector is taken from all keys of a head, and when q becomes
q M and k becomes k M^-T. So keys are centred, and both are turned to the axes of the singular value
decomposition q k^T = U S V^T: q' = U sqrt(S), k' = V sqrt(S). Most columns are small then. All are
rounded to one step, chosen by what rounding does to the logits: small columns need few bits, and
the errors of all columns count alike. Where float16 needs 13 bits a number after compression, the
same accuracy takes 9 or less.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import FloatArray

    Float64Array = NDArray[np.float64]
    Int32Array = NDArray[np.int32]

BITS = 9.0
"""Bits a number that a layer may take before compression: 12 layers of ViT-S/8 at 224 pixels are 11
MB then. A layer gets the finest step within that, but none finer than float16 is."""

COARSEST = 4e-3
"""Root mean square by which rounding may change a logit where more bits would be needed."""

ATTENTION_ERROR = 1.5e-3
"""Largest change of any attention value that is looked at; a finer step is taken where it is more.
Less than the 2e-3 that the page promises, since not all rows are looked at."""

SAMPLE_ROWS = 64
"""Rows of a head that are looked at: half of them spread evenly, half those of the longest q'."""

LIMIT = 32767
"""Largest number that is stored."""


@dataclass(frozen=True, eq=False)
class LayerFactors:
    """One layer's queries and keys, rounded: q' = step * query, k' = step * key.

    query, key (R, H, N) int32, R = min(N, d) columns in the order of their size, within ``LIMIT``.
    """

    query: Int32Array
    key: Int32Array
    step: float

    def attention(self, rows: slice = slice(None)) -> FloatArray:
        """softmax(q' k'^T) of some query tokens, (H, R, N), as the page computes it."""
        query = (self.query[:, :, rows] * self.step).transpose(1, 2, 0)
        return _softmax(query @ (self.key * self.step).transpose(1, 0, 2))


def factors(query: FloatArray, key: FloatArray) -> LayerFactors:
    """Turn and round one layer's scaled queries and keys, both (H, N, d)."""
    turned = [_balanced(q, k) for q, k in zip(query, key, strict=True)]
    left = np.stack([pair[0] for pair in turned])  # H, N, R
    right = np.stack([pair[1] for pair in turned])  # H, N, R
    sample = _sample(left)
    exact = _softmax(_taken(left, sample) @ right.transpose(0, 2, 1))
    step = _step(left, right, _float16_error(query, key, sample))
    while True:
        rounded = np.rint(left / step), np.rint(right / step)
        found = _softmax(_taken(rounded[0] * step, sample) @ (rounded[1] * step).transpose(0, 2, 1))
        finest = 2 * max(np.abs(part).max() for part in rounded) >= LIMIT
        if finest or np.abs(found - exact).max() <= ATTENTION_ERROR:
            break
        step /= 2**0.25
    whole = [np.ascontiguousarray(part.transpose(2, 0, 1), np.int32) for part in rounded]
    return LayerFactors(whole[0], whole[1], step)


def _step(left: Float64Array, right: Float64Array, finest_error: float) -> float:
    """The step for q' and k' (H, N, R): the finest that ``BITS`` and float16 allow."""
    # A logit sums R products; rounding a factor is a uniform error of variance step^2 / 12.
    size = float(np.square(left).sum(-1).mean() + np.square(right).sum(-1).mean())
    if size == 0:
        return 1.0
    both = np.stack([left, right])
    spread = both.std(axis=2)  # 2, H, R
    step = COARSEST * np.sqrt(12 / size)
    finest = max(finest_error * np.sqrt(12 / size), float(np.abs(both).max()) / LIMIT)
    finer = step / 2**0.25
    while finer >= finest and _bits(spread, finer) <= BITS:
        step, finer = finer, finer / 2**0.25
    return float(max(step, np.abs(both).max() / LIMIT))


def _bits(spread: Float64Array, step: float) -> float:
    """Mean entropy of the rounded numbers, were each column drawn from a normal distribution."""
    return float(np.log2(1 + np.sqrt(2 * np.pi * np.e) * spread / step).mean())


def _float16_error(query: FloatArray, key: FloatArray, sample: NDArray[np.intp]) -> float:
    """Root mean square by which float16 queries and keys would change the logits looked at."""
    rows = _taken(query.astype(np.float64), sample)
    with np.errstate(over="ignore", invalid="ignore"):  # beyond 65,504 float16 ends
        rough = [part.astype(np.float16).astype(np.float64) for part in (rows, key)]
        error = rough[0] @ rough[1].transpose(0, 2, 1) - rows @ key.transpose(0, 2, 1)
        # What is the same for a whole row does not change its softmax.
        size = float((error - error.mean(axis=-1, keepdims=True)).std())
    return size if np.isfinite(size) else 0.0


def packed(layer: LayerFactors) -> bytes:
    """The integers of query, then key, as compressed bytes.

    0, -1, 1, -2, ... become 0, 1, 2, 3, ...; all low bytes stand before all high bytes, of which
    most are 0. Compressed with zlib.
    """
    values = np.stack([layer.query, layer.key])
    folded = np.where(values < 0, -2 * values - 1, 2 * values).astype(np.uint16)
    planes = np.stack([folded & 255, folded >> 8]).astype(np.uint8)
    return compressed(planes.tobytes())


def compressed(data: bytes) -> bytes:
    """A zlib stream. The bytes are noise or zeros: only runs are looked for, which is quick."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
    return packer.compress(data) + packer.flush()


def unpacked(data: bytes, shape: tuple[int, int, int], step: float) -> LayerFactors:
    """The inverse of ``packed``; shape (R, H, N). The page's own code does the same."""
    low, high = (
        np.frombuffer(zlib.decompress(data), np.uint8).reshape(2, 2, *shape).astype(np.int32)
    )
    folded = low + 256 * high
    query, key = np.where(folded % 2, -(folded + 1) // 2, folded // 2)
    return LayerFactors(query, key, step)


def _balanced(query: FloatArray, key: FloatArray) -> tuple[Float64Array, Float64Array]:
    """Q' and k' (N, R) of one head, whose product is q (k - mean k)^T."""
    centred = key.astype(np.float64) - key.mean(axis=0, dtype=np.float64)
    query_axes, query_rest = np.linalg.qr(query.astype(np.float64))
    key_axes, key_rest = np.linalg.qr(centred)
    left, sizes, right = np.linalg.svd(query_rest @ key_rest.T)
    root = np.sqrt(sizes)
    return query_axes @ (left * root), key_axes @ (right.T * root)


def _sample(left: Float64Array) -> NDArray[np.intp]:
    """Query tokens of each head to look at, (H, S)."""
    heads, tokens, _ = left.shape
    count = min(SAMPLE_ROWS // 2, tokens)
    spread = np.linspace(0, tokens - 1, count).astype(np.intp)
    longest = np.argsort(-np.square(left).sum(-1), axis=-1, kind="stable")[:, :count]  # H, S
    return np.concatenate([np.broadcast_to(spread, (heads, count)), longest], axis=1)


def _taken(values: Float64Array, sample: NDArray[np.intp]) -> Float64Array:
    return np.take_along_axis(values, sample[..., None], axis=1)


def _softmax(logits: Float64Array) -> FloatArray:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)
