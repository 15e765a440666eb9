"""Vectors of length 1, whose dot products are cosines. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from attnviz.domain import FloatArray


def unit_vectors(vectors: FloatArray) -> FloatArray:
    """Vectors (n, D) divided by their lengths, float32; a zero vector stays zero."""
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    units = np.divide(vectors, norms, out=np.zeros(vectors.shape), where=norms > 0)
    result: FloatArray = units.astype(np.float32)
    return result
