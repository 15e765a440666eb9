"""The vectors of two images as small integers, without changing their cosines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import PairFactors

if TYPE_CHECKING:
    from attnviz.domain import FloatArray

STEP = 1 / 4096
"""What the components of unit vectors are rounded to: cosines change by less than 1e-3."""


def pair_factors(first: FloatArray, second: FloatArray) -> PairFactors:
    """Rotate and round the unit vectors (n, D) and (m, D) of two images.

    A rotation leaves cosines as they are. That to the axes of largest variation leaves most
    components of most vectors small: they round to few values, or all to 0 and are dropped.
    """
    vectors = np.concatenate([first, second]).astype(np.float64)
    _, axes = np.linalg.eigh(vectors.T @ vectors)
    values = np.rint(vectors @ axes[:, ::-1] / STEP).T  # D, n + m
    kept = values[np.abs(values).max(axis=1) > 0]
    return PairFactors(np.ascontiguousarray(kept, np.int16), STEP)
