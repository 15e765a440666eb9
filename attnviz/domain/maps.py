"""What the commands that show attention compute. Arrays are raw, never scaled for display."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import (
    DEFAULT_DISCARD_RATIO,
    DEFAULT_RESIDUAL,
    DiscardOrder,
    Fusion,
    Query,
    take_choices,
)

if TYPE_CHECKING:
    from attnviz.domain.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class HeadsMaps:
    """CLS attention of the chosen heads of one layer.

    attention (H, gh, gw): raw float32 weights of the patch tokens. prefix (H, P): the weights of
    the prefix tokens, so that attention and prefix of a head sum to 1. entropy (H,): of the whole
    row, nats. heads: the model's index of each entry. What takes the whole matrix is None when it
    was not asked for: distance (H,), the mean attention distance over all patch queries in input
    pixels; to_cls (H, gh, gw), the attention of every patch to CLS; token_entropy (H, N), the
    entropy of every token's row. query: whose rows these are.
    """

    attention: FloatArray
    prefix: FloatArray
    entropy: FloatArray
    distance: FloatArray | None
    layer: int
    heads: tuple[int, ...]
    to_cls: FloatArray | None = None
    token_entropy: FloatArray | None = None
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        count = len(self.heads)
        check_shape("HeadsMaps", "attention", self.attention, (count, None, None))
        check_shape("HeadsMaps", "prefix", self.prefix, (count, None))
        check_shape("HeadsMaps", "entropy", self.entropy, (count,))
        if self.distance is not None:
            check_shape("HeadsMaps", "distance", self.distance, (count,))

    @property
    def tokens(self) -> int:
        """N: prefix tokens and patches."""
        _, height, width = self.attention.shape
        return int(self.prefix.shape[1] + height * width)


@dataclass(frozen=True, eq=False)
class LayersMaps:
    """CLS attention of the chosen heads of the chosen layers.

    attention (L, H, gh, gw), prefix (L, H, P), entropy (L, H), distance (L, H) or None.
    """

    attention: FloatArray
    prefix: FloatArray
    entropy: FloatArray
    distance: FloatArray | None
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        both = (len(self.layers), len(self.heads))
        check_shape("LayersMaps", "attention", self.attention, (*both, None, None))
        check_shape("LayersMaps", "prefix", self.prefix, (*both, None))
        check_shape("LayersMaps", "entropy", self.entropy, both)
        if self.distance is not None:
            check_shape("LayersMaps", "distance", self.distance, both)

    @property
    def tokens(self) -> int:
        """N: prefix tokens and patches."""
        height, width = self.attention.shape[2:]
        return int(self.prefix.shape[2] + height * width)


@dataclass(frozen=True)
class RolloutOptions:
    """Attention rollout (Abnar & Zuidema 2020) as DESIGN defines it; see docs/definitions.md."""

    fusion: Fusion = Fusion.MEAN
    residual: float = DEFAULT_RESIDUAL
    discard_ratio: float = DEFAULT_DISCARD_RATIO
    discard: DiscardOrder = DiscardOrder.AFTER
    start_layer: int = 0

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True, eq=False)
class RolloutMaps:
    """The rollout's CLS row and, beside it, the last layer's mean CLS map.

    rollout (gh, gw), prefix (P,): rollout and prefix sum to 1. last (gh, gw): mean over heads of
    the last layer's row of the same query. depths and at_depth (K, gh, gw), at_depth_prefix
    (K, P): the rollout from the start layer up to and including each depth.
    """

    rollout: FloatArray
    prefix: FloatArray
    last: FloatArray
    options: RolloutOptions
    last_layer: int
    depths: tuple[int, ...]
    at_depth: FloatArray
    at_depth_prefix: FloatArray
    heads: tuple[int, ...]
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        grid = tuple(self.rollout.shape)
        check_shape("RolloutMaps", "rollout", self.rollout, (None, None))
        check_shape("RolloutMaps", "last", self.last, grid)
        check_shape("RolloutMaps", "at_depth", self.at_depth, (len(self.depths), *grid))


@dataclass(frozen=True, eq=False)
class PatchMaps:
    """Attention of chosen patches.

    attention (Q, H, gh, gw), prefix (Q, H, P), entropy (Q, H), cells (Q, 2) as (row, column).
    """

    attention: FloatArray
    prefix: FloatArray
    entropy: FloatArray
    cells: IntArray
    layer: int
    heads: tuple[int, ...]

    def __post_init__(self) -> None:
        queries = int(self.cells.shape[0])
        check_shape("PatchMaps", "cells", self.cells, (queries, 2))
        both = (queries, len(self.heads))
        check_shape("PatchMaps", "attention", self.attention, (*both, None, None))
        check_shape("PatchMaps", "prefix", self.prefix, (*both, None))
        check_shape("PatchMaps", "entropy", self.entropy, both)

    @property
    def tokens(self) -> int:
        """N: prefix tokens and patches."""
        height, width = self.attention.shape[2:]
        return int(self.prefix.shape[2] + height * width)


@dataclass(frozen=True, eq=False)
class ScoreMaps:
    """The VTC-LFC token score of one layer and its two terms, all (gh, gw) float32.

    score = cls_term + patch_term. kept (gh, gw) bool: the round(keep_ratio * gh * gw) highest.
    """

    score: FloatArray
    cls_term: FloatArray
    patch_term: FloatArray
    kept: BoolArray
    keep_ratio: float
    layer: int
    heads: tuple[int, ...]

    def __post_init__(self) -> None:
        grid = tuple(self.score.shape)
        check_shape("ScoreMaps", "score", self.score, (None, None))
        for name in ("cls_term", "patch_term", "kept"):
            check_shape("ScoreMaps", name, getattr(self, name), grid)
