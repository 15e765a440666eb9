"""``score``: the VTC-LFC token score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import DEFAULT_KEEP_RATIO
from attnviz.domain.forms import SHARE
from attnviz.domain.kinds.common import HEADS_OPTION, LAYER
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps, Sidecar
from attnviz.domain.options import option, switch

if TYPE_CHECKING:
    from attnviz.domain.arrays import BoolArray, FloatArray
    from attnviz.domain.kinds.kind import Arrays, Row


@dataclass(frozen=True)
class ScoreRequest(CommandRequest):
    """The VTC-LFC token score of a layer."""

    layer: int = LAYER()
    heads: tuple[int, ...] | None = HEADS_OPTION()
    keep_ratio: float = option(
        DEFAULT_KEEP_RATIO, SHARE, "Share of the patches that are kept, highest first."
    )
    csv: bool = switch("Also a table of the scores, one row a patch.")

    @property
    def needs_cls(self) -> bool:
        """Whether only a model with a CLS token can do it."""
        return True


@dataclass(frozen=True, eq=False)
class ScoreMaps(Maps):
    """The VTC-LFC token score of one layer and its two terms, all (gh, gw) float32.

    score = cls_term + patch_term. kept (gh, gw) bool: the round(keep_ratio * gh * gw) highest.
    prefix (P,): the same score of the tokens that are not patches, which are never kept or dropped.
    """

    score: FloatArray
    cls_term: FloatArray
    patch_term: FloatArray
    kept: BoolArray
    keep_ratio: float
    layer: int
    heads: tuple[int, ...]
    prefix: FloatArray | None = None

    def __post_init__(self) -> None:
        grid = tuple(self.score.shape)
        check_shape("ScoreMaps", "score", self.score, (None, None))
        for name in ("cls_term", "patch_term", "kept"):
            check_shape("ScoreMaps", name, getattr(self, name), grid)
        if self.prefix is not None:
            check_shape("ScoreMaps", "prefix", self.prefix, (None,))

    @property
    def prefix_shares(self) -> FloatArray | None:
        """The shares (P,) of CLS, distillation and registers in the score of all tokens."""
        if self.prefix is None:
            return None
        total = float(self.prefix.sum()) + float(self.score.sum())
        return self.prefix / total if total > 0 else self.prefix

    def arrays(self) -> Arrays:
        """Arrays score, cls_term, patch_term (gh, gw), kept (gh, gw) bool, layer (), heads (H,)."""
        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            score=self.score,
            cls_term=self.cls_term,
            patch_term=self.patch_term,
            kept=self.kept,
            layer=self.layer,
            heads=self.heads,
        )

    def rows(self) -> tuple[Row, ...]:
        """One row: the distribution of the scores, and the share that is not on patches."""
        import numpy as np

        from attnviz.domain.row_statistics import highest

        shares = self.prefix_shares
        rest = {} if shares is None else {"prefix_mass": float(shares.sum())}

        quantiles = np.quantile(self.score, (0, 0.25, 0.5, 0.75))
        names = ("min", "q25", "median", "q75")
        return (
            {
                "layer": self.layer,
                "kept": int(self.kept.sum()),
                "patches": int(self.kept.size),
                **{name: float(q) for name, q in zip(names, quantiles, strict=True)},
                **highest(self.score),
                "mean": float(self.score.mean()),
                **rest,
            },
        )

    def patch_rows(self) -> tuple[Row, ...]:
        """One row a patch, in reading order: the score, its terms, and whether it is kept."""
        import numpy as np

        return tuple(
            {
                "row": int(row),
                "column": int(column),
                "score": float(score),
                "cls_term": float(self.cls_term[row, column]),
                "patch_term": float(self.patch_term[row, column]),
                "kept": int(self.kept[row, column]),
            }
            for (row, column), score in np.ndenumerate(self.score)
        )


SCORE = Kind(
    name="score",
    help="""How much each patch matters: the token score of VTC-LFC.

    The score, its two terms, the patches kept at a ratio, and the score's distribution.

    Example: attnviz score photos/ --keep-ratio 0.7 --csv
    """,
    request=ScoreRequest,
    maps=ScoreMaps,
    compute="attnviz.attention.score:score_maps",
    draw="attnviz.figures.score:draw_score",
    check="attnviz.attention.checks:check_score",
    sidecars={"csv": Sidecar("csv", "attnviz.stages.sidecars:write_scores")},
    unused=("alpha",),
)
