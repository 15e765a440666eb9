"""The smooth eigenvectors of a graph of patches: those of a normalised cut (Shi & Malik 2000)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]
    Weights = NDArray[np.float64] | NDArray[np.float32]

DENSE_SIZE = 256
"""Up to this many nodes the whole spectrum is computed."""

_SEED = 0
_ACCURACY = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-7}
"""Relative accuracy of the iteration, no finer than its products."""


def cut_eigenvectors(weights: Weights, count: int) -> tuple[Values, Values]:
    """The eigenvectors of (D - W) v = lambda D v with the smallest eigenvalues, but the first.

    weights W: (n, n), symmetric, not negative, each row with a sum above 0; D is the diagonal
    matrix of these sums. Products with W are made in its own number type, all else in float64. The
    first eigenvector, left out, is constant and its eigenvalue is 0.

    Returns:
        Eigenvalues (count,) in rising order, 0 to 2, and eigenvectors (count, n) with v^T D v = 1.
        The sign of an eigenvector is free; here its entry of largest magnitude is positive.
    """
    nodes = len(weights)
    degrees = weights.sum(axis=1, dtype=np.float64)
    scale = degrees**-0.5
    # With u = D^(1/2) v the problem is that of the symmetric matrix D^(-1/2) W D^(-1/2), whose
    # eigenvalues are 1 - lambda.
    solve = _dense if nodes <= max(DENSE_SIZE, 2 * count + 2) else _lanczos
    similarities, vectors = solve(weights, scale, np.sqrt(degrees / degrees.sum()), count)
    order = np.argsort(-similarities, kind="stable")
    result = (vectors[:, order] * scale[:, None]).T
    largest = np.abs(result).argmax(axis=1)
    result *= np.where(result[np.arange(count), largest] < 0, -1.0, 1.0)[:, None]
    return (1 - similarities[order]).clip(min=0.0), np.ascontiguousarray(result)


def _dense(weights: Weights, scale: Values, first: Values, count: int) -> tuple[Values, Values]:
    from scipy.linalg import eigh

    matrix = weights * scale[:, None] * scale - 2 * np.outer(first, first)
    nodes = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=[nodes - count, nodes - 1])
    return values, vectors


def _lanczos(weights: Weights, scale: Values, first: Values, count: int) -> tuple[Values, Values]:
    """As ``_dense``, by products with the matrix alone: minutes become fractions of a second."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    def multiply(vector: Any) -> Any:
        vector = vector.ravel()
        # The known first eigenvector is moved from 1 to -1, where nothing looks for it.
        product = weights @ (scale * vector).astype(weights.dtype)
        return scale * product - 2 * first * (first @ vector)

    nodes = len(weights)
    operator = LinearOperator((nodes, nodes), matvec=multiply, dtype=np.float64)
    # A start that is the same in every run: eigenvectors must not depend on chance.
    start = np.random.default_rng(_SEED).standard_normal(nodes)
    try:
        values, vectors = eigsh(
            operator, k=count, which="LA", v0=start, tol=_ACCURACY[weights.dtype]
        )
    except ArpackNoConvergence:
        return _dense(weights, scale, first, count)
    return values, vectors
