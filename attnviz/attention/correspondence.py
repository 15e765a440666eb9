"""Which patches of two images correspond: nearest neighbours, and a spread choice of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnviz.attention.kmeans import kmeans

if TYPE_CHECKING:
    from attnviz.domain import BoolArray, FloatArray, IntArray

BLOCK_VALUES = 1 << 24
"""Cosines that are held at a time."""


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest neighbours between the patches of two images, n and m of them.

    there (n,): the patch of the second image that is nearest to each of the first, back (m,) the
    other way. best (n,), best_back (m,): the cosines to them.
    """

    there: IntArray
    back: IntArray
    best: FloatArray
    best_back: FloatArray

    @property
    def mutual(self) -> BoolArray:
        """(n,): whether a patch is the nearest of its nearest."""
        return np.asarray(self.back[self.there] == np.arange(len(self.there)))


def nearest(first: FloatArray, second: FloatArray) -> Nearest:
    """Nearest neighbours of unit vectors (n, D) and (m, D) by cosine; ties: the first patch."""
    count, others = len(first), len(second)
    there, best = np.empty(count, np.int64), np.empty(count, np.float32)
    back, best_back = np.zeros(others, np.int64), np.full(others, -np.inf, np.float32)
    rows = max(1, BLOCK_VALUES // others)
    for start in range(0, count, rows):
        cosines = first[start : start + rows] @ second.T
        stop = start + len(cosines)
        there[start:stop] = cosines.argmax(axis=1)
        best[start:stop] = cosines.max(axis=1)
        highest = cosines.max(axis=0)
        # Only what is higher replaces what an earlier block has, so that the first of equals stays.
        better = highest > best_back
        back[better] = start + cosines.argmax(axis=0)[better]
        best_back[better] = highest[better]
    return Nearest(there, back, best.clip(-1, 1), best_back.clip(-1, 1))


def spread(first: FloatArray, second: FloatArray, rank: FloatArray, count: int) -> IntArray:
    """Indices of at most ``count`` of K pairs that differ from each other, by falling rank.

    first, second (K, D): the unit vectors of the two members of each pair; rank (K,). Pairs are
    clustered by both vectors joined, and each cluster gives its member of highest rank (Amir et al.
    2021); ties: the first pair.
    """
    labels = kmeans(np.concatenate([first, second], axis=1), count)
    order = np.argsort(-rank, kind="stable")
    _, places = np.unique(labels[order], return_index=True)
    return np.asarray(order[np.sort(places)], np.int64)
