"""Principal components of token vectors, exact and in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import FloatArray


@dataclass(frozen=True, eq=False)
class Components:
    """Principal axes (D, count) of some tokens, their mean (D,), and explained ratios (count,).

    Axes that do not exist (count > D) are 0.
    """

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]
    explained: NDArray[np.float64]

    def scores(self, tokens: FloatArray) -> FloatArray:
        """Scores of any tokens (T, D) on the axes: (T, count) float32."""
        values = np.asarray(tokens, np.float64) - self.mean
        return np.asarray(values @ self.axes, np.float32)


def fit_components(tokens: FloatArray, count: int = 3) -> Components:
    """The first principal components of tokens (T, D).

    The tokens are centred; the components are the eigenvectors of their (D, D) covariance by
    falling eigenvalue (Pearson 1901). A component's sign is free: here its loading of largest
    magnitude is positive, the first of equal ones. Ratios: shares of the total variance, 0 where
    all tokens are equal.
    """
    values = np.asarray(tokens, np.float64)
    mean = values.mean(axis=0)
    centred = values - mean
    variances, axes = np.linalg.eigh(centred.T @ centred / max(len(values), 1))
    variances = variances[::-1].clip(min=0.0)
    axes = axes[:, ::-1][:, :count]  # D, count
    largest = np.abs(axes).argmax(axis=0)
    signs = np.where(axes[largest, np.arange(axes.shape[1])] < 0, -1.0, 1.0)
    signed = np.zeros((values.shape[1], count))
    signed[:, : axes.shape[1]] = axes * signs
    ratios = np.zeros(count)
    total = float(variances.sum())
    if total > 0:
        ratios[: axes.shape[1]] = variances[:count] / total
    return Components(mean, signed, ratios)


def principal_components(
    tokens: FloatArray, count: int = 3
) -> tuple[FloatArray, NDArray[np.float64]]:
    """Scores of tokens (T, D) on their own first components (T, count), and the explained ratios.

    As ``fit_components``; components that do not exist (count > D) score 0.
    """
    components = fit_components(tokens, count)
    return components.scores(tokens), components.explained
