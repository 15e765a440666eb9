"""``features``: the output tokens of the model, or of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.domain.arrays import check_shape
from attnviz.domain.forms import INDEX, number
from attnviz.domain.kinds.common import CELLS_OPTION, POINTS_OPTION
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps
from attnviz.domain.options import option, switch
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.domain.arrays import BoolArray, FloatArray, IntArray
    from attnviz.domain.kinds.kind import Arrays, Row


@dataclass(frozen=True)
class FeaturesRequest(CommandRequest):
    """The output tokens of the model, or of ``layer``; ``cells`` and ``points`` as for patches."""

    layer: int | None = option(
        None,
        INDEX,
        "Take the tokens as this layer (block) gives them, from 0; -1 is the last.",
        show="the model's output, after its final norm",
    )
    cells: tuple[tuple[int, int], ...] = CELLS_OPTION(
        "A patch to compare with, by its row and column in the grid, from 0; repeatable."
    )
    points: tuple[tuple[float, float], ...] = POINTS_OPTION(
        "A patch to compare with, by a pixel of the original image; repeatable."
    )
    foreground: bool = switch(
        "Colours for the foreground alone, which the first component sets apart."
    )
    flip_foreground: bool = switch("Take the other side as the foreground.")
    outlier_threshold: float | None = option(
        None,
        number("NORM", above=0),
        "Mark the patches whose norm is higher, e.g. 150 for dinov2_vitg14.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.flip_foreground and not self.foreground:
            raise UsageError("--flip-foreground needs --foreground")


@dataclass(frozen=True, eq=False)
class FeaturesMaps(Maps):
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

    def arrays(self) -> Arrays:
        """Arrays tokens (N, D), norm (gh, gw), prefix_norm (P,), components (gh, gw, 3).

        Also explained (3,), similarity (Q, gh, gw), cells (Q, 2), layer () where one was
        named; with a foreground foreground (gh, gw) bool and first (gh, gw).
        """
        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            tokens=self.tokens,
            norm=self.norm,
            prefix_norm=self.prefix_norm,
            components=self.components,
            explained=self.explained,
            similarity=self.similarity,
            cells=self.cells,
            layer=self.layer,
            foreground=self.foreground,
            first=self.first,
        )

    def rows(self) -> tuple[Row, ...]:
        """The norms: a row for every prefix token, and one for the patches together."""
        import numpy as np

        prefix = zip(self.prefix_names, self.prefix_norm, strict=True)
        norms = [(name, np.array([norm])) for name, norm in prefix]
        rows = []
        for name, values in (*norms, ("patches", self.norm)):
            row: dict[str, Any] = {
                "token": name,
                "norm_min": float(values.min()),
                "norm_median": float(np.median(values)),
                "norm_max": float(values.max()),
            }
            if self.outlier_threshold is not None:
                row["outliers"] = int((values > self.outlier_threshold).sum())
            rows.append(row)
        return tuple(rows)


FEATURES = Kind(
    name="features",
    help="""What the model says of each patch: its output tokens.

    The first three principal components of the patch tokens as red, green and blue, the norm of
    every token as a map and as a histogram, and how similar each patch is to chosen ones.

    Example: attnviz features photo.jpg --foreground --at 3,7
    """,
    request=FeaturesRequest,
    maps=FeaturesMaps,
    compute="attnviz.attention.features:features_maps",
    draw="attnviz.figures.features:draw_features",
    check="attnviz.attention.checks:check_features",
    over_frames="attnviz.attention.features:same_components",
    computed_with=("cells",),
    unused=("alpha",),
)
