"""Principal components of token vectors, exact and in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import FloatArray


def principal_components(
    tokens: FloatArray, count: int = 3
) -> tuple[FloatArray, NDArray[np.float64]]:
    """Scores of tokens (T, D) on their first components (T, count), and the explained ratios.

    The tokens are centred; the components are the eigenvectors of their (D, D) covariance by
    falling eigenvalue (Pearson 1901). A component's sign is free: here its loading of largest
    magnitude is positive, the first of equal ones. ratios (count,): shares of the total variance,
    0 where all tokens are equal. Components that do not exist (count > D) score 0.
    """
    values = np.asarray(tokens, np.float64)
    centred = values - values.mean(axis=0)
    variances, axes = np.linalg.eigh(centred.T @ centred / max(len(values), 1))
    variances = variances[::-1].clip(min=0.0)
    axes = axes[:, ::-1][:, :count]  # D, count
    largest = np.abs(axes).argmax(axis=0)
    signs = np.where(axes[largest, np.arange(axes.shape[1])] < 0, -1.0, 1.0)
    scores = np.zeros((len(values), count), np.float32)
    ratios = np.zeros(count)
    scores[:, : axes.shape[1]] = centred @ (axes * signs)
    total = float(variances.sum())
    if total > 0:
        ratios[: axes.shape[1]] = variances[:count] / total
    return scores, ratios
