"""``layers``: the CLS attention of every layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import Query
from attnviz.domain.forms import INDICES
from attnviz.domain.kinds.common import DISTANCE, HEADS_OPTION, QUERY
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps
from attnviz.domain.options import option, switch

if TYPE_CHECKING:
    from attnviz.domain.arrays import FloatArray
    from attnviz.domain.kinds.kind import Arrays, Row


@dataclass(frozen=True)
class LayersRequest(CommandRequest):
    """The CLS attention of every layer."""

    layers: tuple[int, ...] | None = option(
        None, INDICES, "Layers to show, from 0, e.g. 0,5,11 or 6-11 or -2,-1.", show="all"
    )
    heads: tuple[int, ...] | None = HEADS_OPTION()
    each_head: bool = switch("A grid of every layer and every head.")
    distance: bool = DISTANCE()
    query: Query = QUERY()

    @property
    def needs_cls(self) -> bool:
        """Whether only a model with a CLS token can do it."""
        return self.query is Query.CLS


@dataclass(frozen=True, eq=False)
class LayersMaps(Maps):
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

    def arrays(self) -> Arrays:
        """Arrays attention (L, H, gh, gw), prefix (L, H, P), entropy (L, H), layers (L,).

        Also heads (H,), and distance (L, H) where it was computed.
        """
        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            attention=self.attention,
            prefix=self.prefix,
            entropy=self.entropy,
            layers=self.layers,
            distance=self.distance,
            heads=self.heads,
        )

    def rows(self) -> tuple[Row, ...]:
        """One row a layer and head."""
        from attnviz.domain.row_statistics import map_rows

        return tuple(
            {"layer": layer, "head": head, **row}
            for index, layer in enumerate(self.layers)
            for head, row in zip(
                self.heads,
                map_rows(
                    self.attention[index],
                    self.prefix[index],
                    self.entropy[index],
                    None if self.distance is None else self.distance[index],
                ),
                strict=True,
            )
        )


LAYERS = Kind(
    name="layers",
    help="""Attention of the CLS token from the first layer to the last.

    The map of every layer, mean over heads, with its entropy, and lines of entropy and attention
    distance over depth.

    Example: attnviz layers photo.jpg --model dinov2_vits14 --each-head
    """,
    request=LayersRequest,
    maps=LayersMaps,
    compute="attnviz.attention.maps:layers_maps",
    draw="attnviz.figures.layers:draw_layers",
    check="attnviz.attention.checks:check_layers",
    drawn_with=("each_head",),
    summarised="attnviz.runs.summary:Summary",
    unused=("alpha",),
)
