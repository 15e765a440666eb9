"""The k-th smallest of millions of values, exactly, in about one pass over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from attnviz.domain import FloatArray

SMALL = 1 << 17
"""Up to this many values, all are selected from at once."""

SAMPLE = 1 << 15
"""Values in the sample that brackets the answer."""

CHUNK = 1 << 16
"""Values compared at a time: they stay in cache."""


def kth_smallest(values: Tensor, k: int) -> float:
    """The k-th smallest (k from 1) of a contiguous float32 tensor of any shape.

    A sample brackets the answer, one pass counts the values below the bracket and collects those
    within, and the answer is selected from these few (Floyd & Rivest 1975). Where the bracket
    misses, all values are selected from: the result is always exact.
    """
    count = values.numel()
    if not 1 <= k <= count:
        raise ValueError(f"k is {k}, expected 1 to {count}")
    if values.device.type != "cpu":
        return float(values.flatten().kthvalue(k).values)
    flat: FloatArray = values.flatten().numpy()
    if count <= SMALL:
        return _select(flat, k)
    low, high = _bracket(flat, k)
    below, band = _collect(flat, low, high)
    if not below < k <= below + band.size:
        return _select(flat, k)
    return _select(band, k - below)


def _bracket(flat: FloatArray, k: int) -> tuple[float, float]:
    """Two values between which the k-th smallest very probably lies."""
    # An odd stride does not stay in step with the rows of a matrix.
    sample = np.sort(flat[:: (flat.size // SAMPLE) | 1])
    share_below = k / flat.size
    margin = 4 * (sample.size * share_below * (1 - share_below)) ** 0.5 + 4
    low, high = int(share_below * sample.size - margin), int(share_below * sample.size + margin)
    return (
        float(sample[low]) if low >= 0 else float("-inf"),
        float(sample[high]) if high < sample.size else float("inf"),
    )


def _collect(flat: FloatArray, low: float, high: float) -> tuple[int, FloatArray]:
    """The number of values below ``low``, and the values from ``low`` to ``high``."""
    below = 0
    band: list[FloatArray] = []
    for start in range(0, flat.size, CHUNK):
        chunk = flat[start : start + CHUNK]
        under = chunk < low
        below += int(np.count_nonzero(under))
        band.append(chunk[(chunk <= high) != under])
    return below, np.concatenate(band)


def _select(flat: FloatArray, k: int) -> float:
    return float(np.partition(flat, k - 1)[k - 1])
