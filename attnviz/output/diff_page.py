"""Whether two explorer pages show the same attention.

Queries and keys are rotated before they are stored, and another machine may choose other axes. So
pages whose bytes differ are compared by the attention that they give.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

ATTENTION_WITHIN = 1e-2
"""Root mean square by which the logarithm of attention may differ, of one layer: where a page
cannot be more accurate, rounding changes logits by 4e-3."""

ROLLOUT_WITHIN = 2e-5
"""Largest distance of two values of a rollout."""

_BLOCK = re.compile(r'<script type="(?:application/json|text/plain)" id="([\w-]+)">(.*?)</script>')
_ROUNDED = ("ranks", "steps", "picture")
"""Facts that differ where rounding does: how layers are stored, and the encoded image."""


def compare_pages(expected: Path, actual: Path, tolerance: float) -> str | None:
    """How two pages differ, in words; None if they do not.

    tolerance: of the image, as a root mean square over pixels and channels, 0..255.
    """
    try:
        (before_frame, before), (after_frame, after) = map(_parts, (expected, actual))
        if before == after:
            return None if before_frame == after_frame else "has other scripts or styles"
        return _difference(before, after, tolerance)
    except (KeyError, ValueError, OSError, zlib.error, binascii.Error):
        return "is not an explorer page"


def _parts(path: Path) -> tuple[str, dict[str, str]]:
    """The page without its blocks of data, and the blocks but for the record."""
    text = path.read_text(encoding="utf-8")
    blocks = {name: content for name, content in _BLOCK.findall(text) if name != "record"}
    return _BLOCK.sub("", text), blocks


def _difference(
    before: Mapping[str, str], after: Mapping[str, str], tolerance: float
) -> str | None:
    old, new = (json.loads(blocks["facts"]) for blocks in (before, after))
    names = [name for name in new if name not in _ROUNDED and old.get(name) != new[name]]
    if names or before.keys() != after.keys():
        return f"has other {', '.join(names) or 'layers'}"
    rms = _rms(_image(old), _image(new))
    if rms > tolerance:
        return f"its image differs, RMS {rms:.3g}"
    for index, layer in enumerate(new["layers"]):
        heads = zip(
            _log_attention(old, before, index), _log_attention(new, after, index), strict=True
        )
        rms = float(np.sqrt(np.mean([np.square(one - other).mean() for one, other in heads])))
        if not rms <= ATTENTION_WITHIN:
            return f"attention of layer {layer} differs by {100 * rms:.2g} % (root mean square)"
    if new["rollout"] is not None:
        one, other = (np.frombuffer(_bytes(blocks["rollout"]), "<f4") for blocks in (before, after))
        largest = float(np.abs(one - other).max())
        if not largest <= ROLLOUT_WITHIN:
            return f"rollout differs by up to {largest:.2g}"
    return None


def _log_attention(
    facts: Mapping[str, Any], blocks: Mapping[str, str], index: int
) -> Iterator[NDArray[np.float32]]:
    """The logarithm of the attention of one layer, one head (N, N) after the other."""
    layer, rank = facts["layers"][index], facts["ranks"][index]
    planes = np.frombuffer(_bytes(blocks[f"layer-{layer}"]), np.uint8).reshape(2, -1)
    folded = planes[0].astype(np.int32) | planes[1].astype(np.int32) << 8
    # 0, 1, 2, 3 stand for 0, -1, 1, -2.
    values = ((folded >> 1) ^ -(folded & 1)).reshape(2, rank, facts["heads"], -1)
    query, key = facts["steps"][index] * values.astype(np.float32)  # R, H, N
    bias = _bytes(blocks[f"bias-{layer}"]) if layer in facts["biases"] else b""
    for head in range(facts["heads"]):
        logits = query[:, head].T @ key[:, head]
        if bias:
            logits += _bias(np.frombuffer(bias, "<f4"), facts, head)
        logits -= logits.max(axis=1, keepdims=True)
        yield logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def _bias(values: NDArray[np.float32], facts: Mapping[str, Any], head: int) -> Any:
    """What a layer adds to the logits of one head, (N, N)."""
    (rows, columns), prefix, heads = facts["grid"], len(facts["prefix"]), facts["heads"]
    cells, span = rows * columns, (2 * rows - 1) * (2 * columns - 1)
    ends = np.cumsum([heads * span, heads * prefix * (prefix + cells)])
    offsets, of_prefix, to_prefix = (part.reshape(heads, -1) for part in np.split(values, ends))
    row, column = np.divmod(np.arange(cells), columns)
    down, across = row[:, None] - row + rows - 1, column[:, None] - column + columns - 1
    patches = offsets[head][down * (2 * columns - 1) + across]
    left = to_prefix[head].reshape(cells, prefix)
    above = of_prefix[head].reshape(prefix, prefix + cells)
    return np.concatenate([above, np.concatenate([left, patches], axis=1)])


def _bytes(block: str) -> bytes:
    return zlib.decompress(base64.b64decode(block))


def _image(facts: Mapping[str, Any]) -> NDArray[np.uint8]:
    data = base64.b64decode(facts["picture"]["address"].partition(",")[2])
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def _rms(before: NDArray[np.uint8], after: NDArray[np.uint8]) -> float:
    if before.shape != after.shape:
        return float("inf")
    return float(np.sqrt(np.mean(np.square(before.astype(np.float64) - after))))
