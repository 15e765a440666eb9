"""The object of an image from one vector a patch: LOST, TokenCut, spectral. No torch.

The definitions, with their sources, are in docs/definitions.md. Vectors are (n, D) float32, the
patches of a grid (gh, gw) in reading order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.attention.eigenvectors import cut_eigenvectors
from attnviz.attention.units import unit_vectors
from attnviz.domain import DiscoverMethod, Size
from attnviz.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from attnviz.domain import BoolArray, FloatArray, IntArray

EXPANSION = 100
"""Patches of lowest degree among which LOST looks for more of the object."""

THRESHOLD = 0.2
"""Cosine above which TokenCut joins two patches."""

WEAK = 1e-5
"""Weight of the patches that TokenCut does not join, so that the graph holds together."""

EIGENVECTORS = 5
"""Eigenvectors of the spectral method, at most."""

BLOCK_VALUES = 1 << 24
"""Dot products that LOST holds at a time."""


@dataclass(frozen=True, eq=False)
class Discovered:
    """What a method finds; arrays as of ``DiscoverMaps``, seed as the patch's index."""

    mask: BoolArray
    seed: int
    degree: IntArray | None = None
    similarity: FloatArray | None = None
    eigenvectors: FloatArray | None = None
    eigenvalues: FloatArray | None = None


def discover(vectors: FloatArray, grid: Size, method: DiscoverMethod) -> Discovered:
    """The object by a method.

    Raises:
        ImageError: A single patch, which nothing can be told apart from.
    """
    if len(vectors) < 2:
        raise ImageError("discover needs at least two patches", "give a larger --size")
    return _METHODS[method](vectors, grid)


def lost(vectors: FloatArray, grid: Size) -> Discovered:
    """LOST (Simeoni et al. 2021): the patch that is like the fewest, and what is like it."""
    degree = _degrees(vectors)
    lowest = np.argsort(degree, kind="stable")[:EXPANSION]
    seed = int(lowest[0])
    similar = lowest[vectors[lowest] @ vectors[seed] > 0]
    # The sum of the rows of A is the product with the sum of the vectors.
    total = vectors[similar].astype(np.float64).sum(axis=0)
    similarity = vectors.astype(np.float64) @ total
    return Discovered(
        mask=component(similarity.reshape(grid) > 0, seed),
        seed=seed,
        degree=degree.reshape(grid),
        similarity=similarity.astype(np.float32).reshape(grid),
    )


def token_cut(vectors: FloatArray, grid: Size) -> Discovered:
    """TokenCut (Wang et al. 2022): the normalised cut of the graph of similar patches."""
    units = unit_vectors(vectors)
    weights = np.where(units @ units.T > THRESHOLD, 1.0, WEAK)
    np.fill_diagonal(weights, 1.0)
    if is_uniform(weights):
        return _undivided(1, grid)
    eigenvalues, eigenvectors = cut_eigenvectors(weights, 1)
    # Its entry of largest magnitude is positive already, so the object is the side above the mean.
    vector = eigenvectors[0]
    seed = int(np.abs(vector).argmax())
    mask = component((vector > vector.mean()).reshape(grid), seed)
    return _spectral_result(mask, seed, eigenvalues, eigenvectors, grid)


def spectral(vectors: FloatArray, grid: Size) -> Discovered:
    """Deep spectral methods (Melas-Kyriazi et al. 2022): eigenvectors of the Laplacian of cosines.

    The object is the largest component of the smaller side of the first of them.
    """
    units = unit_vectors(vectors)
    weights = units @ units.T
    np.maximum(weights, 0, out=weights)
    np.fill_diagonal(weights, 1.0)
    count = min(EIGENVECTORS, len(vectors) - 1)
    if is_uniform(weights):
        return _undivided(count, grid)
    eigenvalues, eigenvectors = cut_eigenvectors(weights, count)
    larger = (eigenvectors > 0).mean(axis=1) > 0.5
    eigenvectors *= np.where(larger, -1.0, 1.0)[:, None]
    mask = largest_component((eigenvectors[0] > 0).reshape(grid))
    seed = int(np.where(mask.ravel(), eigenvectors[0], -np.inf).argmax())
    return _spectral_result(mask, seed, eigenvalues, eigenvectors, grid)


_METHODS: dict[DiscoverMethod, Callable[[FloatArray, Size], Discovered]] = {
    DiscoverMethod.LOST: lost,
    DiscoverMethod.TOKENCUT: token_cut,
    DiscoverMethod.SPECTRAL: spectral,
}


def component(mask: BoolArray, seed: int) -> BoolArray:
    """The 4-connected component of a mask (gh, gw) that holds a patch; that patch in any case."""
    labels = _labels(mask)
    label = labels.ravel()[seed]
    if label:
        return np.asarray(labels == label)
    alone = np.zeros(mask.size, np.bool_)
    alone[seed] = True
    return alone.reshape(mask.shape)


def largest_component(mask: BoolArray) -> BoolArray:
    """The largest 4-connected component of a mask (gh, gw), the first in reading order of equal."""
    labels = _labels(mask)
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    return np.asarray((labels == sizes.argmax()) & mask)


def _labels(mask: BoolArray) -> IntArray:
    from scipy.ndimage import label

    labels: IntArray = label(mask)[0].astype(np.int64)  # its default neighbours are the four
    return labels


def _degrees(vectors: FloatArray) -> IntArray:
    """Of each vector, the number of others with a positive dot product, (n,)."""
    count = len(vectors)
    degree = np.empty(count, np.int64)
    rows = max(1, BLOCK_VALUES // count)
    for start in range(0, count, rows):
        block = vectors[start : start + rows] @ vectors.T > 0
        degree[start : start + rows] = np.count_nonzero(block, axis=1)
        own = np.arange(len(block))
        degree[start : start + rows] -= block[own, start + own]
    return degree


def is_uniform(weights: NDArray[np.floating[Any]]) -> bool:
    """Whether all weights but the diagonal are equal: every patch is as like any other."""
    one = weights[0, 1]
    if (weights[0, 1:] != one).any():  # nearly always, and known without a look at the rest
        return False
    different = np.count_nonzero(weights != one)
    return bool(different == np.count_nonzero(np.diagonal(weights) != one))


def _undivided(count: int, grid: Size) -> Discovered:
    """Nothing is set apart: the object is all patches. Any vector would be an eigenvector."""
    return Discovered(
        mask=np.ones(grid, np.bool_),
        seed=0,
        eigenvectors=np.zeros((count, *grid), np.float32),
        eigenvalues=np.ones(count, np.float32),
    )


def _spectral_result(
    mask: BoolArray,
    seed: int,
    eigenvalues: NDArray[np.float64],
    eigenvectors: NDArray[np.float64],
    grid: Size,
) -> Discovered:
    return Discovered(
        mask,
        seed,
        eigenvectors=eigenvectors.astype(np.float32).reshape(-1, *grid),
        eigenvalues=eigenvalues.astype(np.float32),
    )
