"""The k-th smallest of millions of values, exactly, in about one pass over them."""

from __future__ import annotations

import torch
from torch import Tensor

SMALL = 1 << 17
SAMPLE = 1 << 15
CHUNK = 1 << 18


def kth_smallest(values: Tensor, k: int) -> float:
    """The k-th smallest (k from 1) of a contiguous float tensor of any shape.

    A sample brackets the answer, one pass counts what lies below the bracket and collects what
    lies in it, and the answer is selected among those few (Floyd & Rivest 1975). When the sample
    misleads, the whole is selected from instead: the result is exact in any case.
    """
    flat = values.flatten()
    count = flat.numel()
    if not 1 <= k <= count:
        raise ValueError(f"k is {k}, expected 1 to {count}")
    if count <= SMALL or flat.device.type != "cpu":
        return float(flat.kthvalue(k).values)
    # An odd stride does not fall in step with the rows of a matrix.
    sample = flat[:: (count // SAMPLE) | 1].sort().values
    size = sample.numel()
    share = k / count
    margin = 4 * (size * share * (1 - share)) ** 0.5 + 4
    low_place, high_place = int(share * size - margin), int(share * size + margin)
    low = float(sample[low_place]) if low_place >= 0 else float("-inf")
    high = float(sample[high_place]) if high_place < size else float("inf")
    below = 0
    band = []
    for start in range(0, count, CHUNK):
        chunk = flat[start : start + CHUNK]
        under = chunk < low
        below += int(torch.count_nonzero(under))
        band.append(chunk[(chunk <= high).logical_and_(under.logical_not_())])
    inside = torch.cat(band)
    if not below < k <= below + inside.numel():
        return float(flat.kthvalue(k).values)
    return float(inside.kthvalue(k - below).values)
