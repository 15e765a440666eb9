"""The k-th smallest of millions of values, exactly, in about one pass over them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from attnviz.domain import FloatArray

SMALL = 1 << 17
"""Up to this many values, all are selected from at once."""

SAMPLE = 1 << 15
"""Values in the sample that brackets the answer, at most."""

CHUNK = 1 << 16
"""Values compared at a time: they stay in cache."""

THREAD_VALUES = 1 << 21
"""Values that a thread of its own is worth."""


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
    size = min(SAMPLE, int(flat.size ** (2 / 3)))
    # An odd stride does not stay in step with the rows of a matrix.
    sample = np.sort(flat[:: (flat.size // size) | 1])
    share_below = k / flat.size
    margin = 4 * (sample.size * share_below * (1 - share_below)) ** 0.5 + 4
    low, high = int(share_below * sample.size - margin), int(share_below * sample.size + margin)
    return (
        float(sample[low]) if low >= 0 else float("-inf"),
        float(sample[high]) if high < sample.size else float("inf"),
    )


def _collect(flat: FloatArray, low: float, high: float) -> tuple[int, FloatArray]:
    """The number of values below ``low``, and the values from ``low`` to ``high``."""
    threads = min(torch.get_num_threads(), flat.size // THREAD_VALUES)
    if threads <= 1:
        return _collect_part(flat, low, high)
    with ThreadPoolExecutor(threads) as pool:  # numpy lets go of the interpreter's lock
        parts = list(
            pool.map(_collect_part, np.array_split(flat, threads), repeat(low), repeat(high))
        )
    return sum(below for below, _ in parts), np.concatenate([band for _, band in parts])


def _collect_part(flat: FloatArray, low: float, high: float) -> tuple[int, FloatArray]:
    least, most = np.float32(low), np.float32(high)
    under, inside = np.empty(CHUNK, np.bool_), np.empty(CHUNK, np.bool_)
    below = 0
    band: list[FloatArray] = []
    for start in range(0, flat.size, CHUNK):
        chunk = flat[start : start + CHUNK]
        is_under, is_inside = under[: chunk.size], inside[: chunk.size]
        np.less(chunk, least, out=is_under)
        np.less_equal(chunk, most, out=is_inside)
        np.not_equal(is_inside, is_under, out=is_inside)
        below += int(np.count_nonzero(is_under))
        band.append(chunk[np.flatnonzero(is_inside)])
    return below, np.concatenate(band)


def _select(flat: FloatArray, k: int) -> float:
    return float(np.partition(flat, k - 1)[k - 1])
