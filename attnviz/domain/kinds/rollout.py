"""``rollout``: attention rollout through all layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import (
    DEFAULT_DISCARD_RATIO,
    DEFAULT_RESIDUAL,
    DiscardOrder,
    Fusion,
    take_choices,
)
from attnviz.domain.forms import INDEX, INDICES, choice, number
from attnviz.domain.kinds.common import HEADS_OPTION, OVERLAY_ONLY, QUERY
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps
from attnviz.domain.options import group, option
from attnviz.domain.query import Query

if TYPE_CHECKING:
    from attnviz.domain.arrays import FloatArray
    from attnviz.domain.kinds.kind import Arrays, Row


@dataclass(frozen=True)
class RolloutOptions:
    """How a rollout multiplies layers (Abnar & Zuidema 2020); see docs/definitions.md."""

    fusion: Fusion = option(Fusion.MEAN, choice(Fusion), "How the heads of a layer are fused.")
    residual: float = option(
        DEFAULT_RESIDUAL,
        number("0..1", least=0, below=1),
        "Share of the identity mixed into each layer; 0: none.",
    )
    discard_ratio: float = option(
        DEFAULT_DISCARD_RATIO,
        number("0..1", least=0, below=1),
        "Share of each layer's smallest values that become 0; 0 is the paper's rollout.",
    )
    discard: DiscardOrder = option(
        DiscardOrder.AFTER,
        choice(DiscardOrder),
        "Discard before or after the identity is mixed in.",
    )
    start_layer: int = option(0, INDEX, "First layer of the product, from 0.")

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True)
class RolloutRequest(CommandRequest):
    """Attention rollout. ``depths``: also show the rollout after these layers."""

    options: RolloutOptions = group(RolloutOptions)
    heads: tuple[int, ...] | None = HEADS_OPTION()
    depths: tuple[int, ...] = option(
        (),
        INDICES,
        "Also show the rollout after these layers, e.g. 2,5,8.",
        name="layers-shown",
        show="none",
    )
    query: Query = QUERY()
    overlay_only: bool = OVERLAY_ONLY()

    @property
    def needs_cls(self) -> bool:
        """Whether only a model with a CLS token can do it."""
        return self.query is Query.CLS


@dataclass(frozen=True, eq=False)
class RolloutMaps(Maps):
    """The rollout's CLS row and, beside it, the last layer's mean CLS map.

    rollout (gh, gw), prefix (P,): rollout and prefix sum to 1. last (gh, gw): mean over heads of
    the last layer's row of the same query, or of the attention pooling's own. depths and at_depth
    (K, gh, gw), at_depth_prefix (K, P): the rollout from the start layer up to and including each
    depth.
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

    def arrays(self) -> Arrays:
        """Arrays rollout (gh, gw), prefix (P,), last (gh, gw), depths (K,), heads (H,).

        Also at_depth (K, gh, gw) and at_depth_prefix (K, P).
        """
        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            rollout=self.rollout,
            prefix=self.prefix,
            last=self.last,
            depths=self.depths,
            at_depth=self.at_depth,
            at_depth_prefix=self.at_depth_prefix,
            heads=self.heads,
        )

    def rows(self) -> tuple[Row, ...]:
        """One row a depth."""
        from attnviz.domain.row_statistics import entropy, joined_rows, map_rows

        whole = joined_rows(self.at_depth_prefix, self.at_depth)
        numbers = map_rows(self.at_depth, self.at_depth_prefix, entropy(whole), None)
        return tuple(
            {"depth": depth, **row} for depth, row in zip(self.depths, numbers, strict=True)
        )


ROLLOUT = Kind(
    name="rollout",
    help="""Attention rollout to the CLS token through all layers (Abnar & Zuidema 2020).

    The image, the last layer's mean map, the rollout, and the rollout over the image.

    Example: attnviz rollout photo.jpg --model dino_vits8 --discard-ratio 0
    """,
    request=RolloutRequest,
    maps=RolloutMaps,
    compute="attnviz.attention.rollout:rollout_maps",
    draw="attnviz.figures.rollout:draw_rollout",
    overlays="attnviz.figures.overlays:rollout_overlays",
    check="attnviz.attention.checks:check_rollout",
    extra_bytes="attnviz.attention.memory:rollout_bytes",
)
