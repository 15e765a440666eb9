"""What ``features`` computes: the tokens that a model or a layer gives out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape

if TYPE_CHECKING:
    from attnviz.domain.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class FeaturesMaps:
    """The output tokens of a model, or of one of its layers, and what is drawn of them.

    tokens (N, D): after the model's final norm, or as ``layer`` gives them where it is not None.
    norm (gh, gw), prefix_norm (P,): lengths of the tokens as the last block, or ``layer``, gives
    them, before the final norm. components (gh, gw, 3): the patch tokens' scores on their first
    three principal components, explained (3,): their shares of the variance; of the foreground
    alone, and 0 elsewhere, where a foreground was asked for. similarity (Q, gh, gw): the cosine
    of every patch token with those of cells (Q, 2), as (row, column), -1 to 1.

    foreground (gh, gw) bool and first (gh, gw): the patches that the first component of all
    patches, turned so that the foreground is positive, sets apart; None without.
    outlier_threshold: the norm above which a token counts as an outlier.
    prefix_names: the names of the prefix tokens, such as CLS and R1.
    """

    tokens: FloatArray
    norm: FloatArray
    prefix_norm: FloatArray
    components: FloatArray
    explained: FloatArray
    similarity: FloatArray
    cells: IntArray
    layer: int | None
    foreground: BoolArray | None = None
    first: FloatArray | None = None
    outlier_threshold: float | None = None
    prefix_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        grid = tuple(self.norm.shape)
        check_shape("FeaturesMaps", "norm", self.norm, (None, None))
        prefix = int(self.prefix_norm.shape[0])
        check_shape("FeaturesMaps", "tokens", self.tokens, (prefix + grid[0] * grid[1], None))
        check_shape("FeaturesMaps", "components", self.components, (*grid, 3))
        check_shape("FeaturesMaps", "explained", self.explained, (3,))
        queries = int(self.cells.shape[0])
        check_shape("FeaturesMaps", "cells", self.cells, (queries, 2))
        check_shape("FeaturesMaps", "similarity", self.similarity, (queries, *grid))
        for name in ("foreground", "first"):
            if getattr(self, name) is not None:
                check_shape("FeaturesMaps", name, getattr(self, name), grid)

    @property
    def outliers(self) -> BoolArray | None:
        """(gh, gw): the patches whose norm is above the threshold; None without a threshold."""
        return None if self.outlier_threshold is None else self.norm > self.outlier_threshold
