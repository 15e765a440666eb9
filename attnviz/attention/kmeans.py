"""k-means with a seed: the same clusters in every run and with every version of every library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import FloatArray, IntArray

ITERATIONS = 100
_SEED = 0


def kmeans(points: FloatArray, count: int) -> IntArray:
    """The cluster (n,) of each point (n, D), 0 to count - 1; with few points each has its own.

    Lloyd's iteration (1982) from the starts of k-means++ (Arthur & Vassilvitskii 2007), until no
    point changes its cluster. Of equally near centres the first is taken; a cluster that loses all
    its points keeps its centre.
    """
    values = points.astype(np.float64)
    if len(values) <= count:
        return np.arange(len(values))
    centres = _starts(values, count)
    labels = _distances(values, centres).argmin(axis=1)
    for _ in range(ITERATIONS):
        for cluster in range(count):
            members = values[labels == cluster]
            if len(members):
                centres[cluster] = members.mean(axis=0)
        before, labels = labels, _distances(values, centres).argmin(axis=1)
        if np.array_equal(before, labels):
            break
    clusters: IntArray = labels.astype(np.int64)
    return clusters


def _starts(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Points that are far apart: each drawn with the square of its distance to those before it."""
    rng = np.random.default_rng(_SEED)
    chosen = [int(rng.integers(len(values)))]
    nearest = _distances(values, values[chosen])[:, 0]
    while len(chosen) < count:
        total = np.cumsum(nearest)
        place = rng.random() * total[-1]
        chosen.append(min(int(np.searchsorted(total, place, side="right")), len(values) - 1))
        nearest = np.minimum(nearest, _distances(values, values[chosen[-1:]])[:, 0])
    starts: NDArray[np.float64] = values[chosen]
    return starts


def _distances(values: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances (n, k)."""
    squares = (values**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)
    return np.asarray(np.maximum(squares - 2 * values @ centres.T, 0.0), np.float64)
