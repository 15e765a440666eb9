"""``score``: the VTC-LFC token score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import DEFAULT_KEEP_RATIO
from attnviz.domain.forms import INDICES_OR_ALL, SHARES
from attnviz.domain.kinds.common import HEADS_OPTION, LAYER
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps, Sidecar
from attnviz.domain.options import option, switch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnviz.domain.arrays import BoolArray, FloatArray
    from attnviz.domain.kinds.kind import Arrays, Row


@dataclass(frozen=True)
class ScoreRequest(CommandRequest):
    """The VTC-LFC token score of a layer, or of the layers of a pruning run."""

    layer: int = LAYER()
    heads: tuple[int, ...] | None = HEADS_OPTION()
    keep_ratio: float | tuple[float, ...] = option(
        DEFAULT_KEEP_RATIO,
        SHARES,
        "Share of the patches that are kept, highest first; with --layers also several, for equal "
        "runs of these layers.",
    )
    lfe: bool = switch(
        "Multiply the score by the low-frequency energy of each patch, as VTC-LFC's code does."
    )
    layers: tuple[int, ...] | Literal["all"] | None = option(
        None,
        INDICES_OR_ALL,
        "Prune in these layers, or in all, each on the patches that are left, and show every step.",
        show="one layer, nothing pruned",
    )
    csv: bool = switch("Also a table of the scores, one row a patch.")

    @property
    def needs_cls(self) -> bool:
        """Whether only a model with a CLS token can do it."""
        return True

    @property
    def keep_ratios(self) -> tuple[float, ...]:
        """The keep ratios, of which there is one or more."""
        return self.keep_ratio if isinstance(self.keep_ratio, tuple) else (self.keep_ratio,)


@dataclass(frozen=True, eq=False)
class ScoreMaps(Maps):
    """The VTC-LFC token score of one layer and its two terms, all (gh, gw) float32.

    score = cls_term + patch_term, times ``lfe`` (gh, gw), the low-frequency energy, where that was
    asked for. kept (gh, gw) bool: the round(keep_ratio * gh * gw) highest. prefix (P,): the two
    terms' sum for the tokens that are not patches, which are never kept or dropped.

    Of a pruning run ``steps`` holds the maps of every layer, in order, and the other fields are
    those of the last one. ``present`` (gh, gw) bool: the patches that are left before the layer;
    float maps are NaN elsewhere. None: all.
    """

    score: FloatArray
    cls_term: FloatArray
    patch_term: FloatArray
    kept: BoolArray
    keep_ratio: float
    layer: int
    heads: tuple[int, ...]
    prefix: FloatArray | None = None
    lfe: FloatArray | None = None
    present: BoolArray | None = None
    steps: tuple[ScoreMaps, ...] = ()

    def __post_init__(self) -> None:
        grid = tuple(self.score.shape)
        check_shape("ScoreMaps", "score", self.score, (None, None))
        for name in ("cls_term", "patch_term", "kept", "lfe", "present"):
            if getattr(self, name) is not None:
                check_shape("ScoreMaps", name, getattr(self, name), grid)
        if self.prefix is not None:
            check_shape("ScoreMaps", "prefix", self.prefix, (None,))

    @property
    def attention_score(self) -> FloatArray:
        """Equation 8 alone, without the low-frequency energy: (gh, gw)."""
        return self.score if self.lfe is None else self.cls_term + self.patch_term

    @property
    def prefix_shares(self) -> FloatArray | None:
        """The shares (P,) of CLS, distillation and registers in equation 8 of all tokens."""
        if self.prefix is None:
            return None
        total = float(self.prefix.sum()) + float(self.of_present(self.attention_score).sum())
        return self.prefix / total if total > 0 else self.prefix

    def of_present(self, values: FloatArray) -> FloatArray:
        """The values (n,) of the patches that are left before the layer."""
        return values.ravel() if self.present is None else values[self.present]

    def arrays(self) -> Arrays:
        """Arrays score, cls_term, patch_term (gh, gw), kept (gh, gw) bool, layer (), heads (H,).

        Also lfe (gh, gw) where it was asked for. Of a pruning run all maps are (L, gh, gw), with
        layers (L,) in place of layer.
        """
        import numpy as np

        from attnviz.domain.kinds.common import given_arrays

        names = ["score", "cls_term", "patch_term", "kept"]
        names += [] if self.lfe is None else ["lfe"]
        if not self.steps:
            maps = {name: getattr(self, name) for name in names}
            return given_arrays(**maps, layer=self.layer, heads=self.heads)
        maps = {name: np.stack([getattr(step, name) for step in self.steps]) for name in names}
        layers = tuple(step.layer for step in self.steps)
        return given_arrays(**maps, layers=layers, heads=self.heads)

    def rows(self) -> tuple[Row, ...]:
        """One row a layer: the distribution of the scores, and the share that is not on patches."""
        return tuple(map(_layer_row, self.steps or (self,)))

    def patch_rows(self) -> tuple[Row, ...]:
        """One row a patch, in reading order: the score, its terms, and whether it is kept.

        Of a pruning run, one row a layer and patch that is left before it.
        """
        if not self.steps:
            return tuple(_patch_rows(self))
        return tuple(
            {"layer": step.layer, **row} for step in self.steps for row in _patch_rows(step)
        )


def _layer_row(maps: ScoreMaps) -> Row:
    import numpy as np

    from attnviz.domain.row_statistics import highest

    left: Row = {} if maps.present is None else {"left": int(maps.present.sum())}
    rest: Row = {}
    shares = maps.prefix_shares
    if shares is not None:
        rest["prefix_mass"] = float(shares.sum())
    if maps.lfe is not None:
        energy = maps.of_present(maps.lfe)
        rest |= {"lfe_min": float(energy.min()), "lfe_max": float(energy.max())}
    scores = maps.of_present(maps.score)
    quantiles = np.quantile(scores, (0, 0.25, 0.5, 0.75))
    names = ("min", "q25", "median", "q75")
    return {
        "layer": maps.layer,
        **left,
        "kept": int(maps.kept.sum()),
        "patches": int(maps.kept.size),
        **{name: float(q) for name, q in zip(names, quantiles, strict=True)},
        **highest(np.nan_to_num(maps.score, nan=-np.inf)),
        "mean": float(scores.mean()),
        **rest,
    }


def _patch_rows(maps: ScoreMaps) -> Iterator[Row]:
    import numpy as np

    for (row, column), score in np.ndenumerate(maps.score):
        if maps.present is None or maps.present[row, column]:
            yield {
                "row": int(row),
                "column": int(column),
                "score": float(score),
                "cls_term": float(maps.cls_term[row, column]),
                "patch_term": float(maps.patch_term[row, column]),
                **({} if maps.lfe is None else {"lfe": float(maps.lfe[row, column])}),
                "kept": int(maps.kept[row, column]),
            }


SCORE = Kind(
    name="score",
    help="""How much each patch matters: the token score of VTC-LFC.

    The score, its two terms, the patches kept at a ratio, and the score's distribution. With --lfe
    the score is multiplied by the low-frequency energy of the patches; with --layers the patches
    are pruned as in a pruning run, and every step is shown.

    Example: attnviz score photos/ --keep-ratio 0.7 --csv
    """,
    request=ScoreRequest,
    maps=ScoreMaps,
    compute="attnviz.attention.score:score_maps",
    draw="attnviz.figures.score:draw_score",
    check="attnviz.attention.checks:check_score",
    extra_bytes="attnviz.attention.memory:score_bytes",
    sidecars={"csv": Sidecar("csv", "attnviz.stages.sidecars:write_scores")},
    unused=("alpha",),
)
