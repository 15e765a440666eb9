"""``layers``: the CLS attention of every layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.forms import INDICES
from attnviz.domain.kinds.common import DISTANCE, HEADS_OPTION, QUERY
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps
from attnviz.domain.options import option, switch
from attnviz.domain.query import Query

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
    sinks: bool = switch(
        "Also how much attention single tokens receive, by layer and head, beside the norms of "
        "their values."
    )

    @property
    def needs_cls(self) -> bool:
        """Whether only a model with a CLS token can do it."""
        return self.query is Query.CLS


@dataclass(frozen=True, eq=False)
class LayersMaps(Maps):
    """CLS attention of the chosen heads of the chosen layers.

    attention (L, H, gh, gw), prefix (L, H, P), entropy (L, H), distance (L, H) or None. Where sinks
    were asked for, received (L, H, N), the attention that every token receives from all tokens, and
    value_norms (L, H, N), the Euclidean norm of its value.
    """

    attention: FloatArray
    prefix: FloatArray
    entropy: FloatArray
    distance: FloatArray | None
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    query: Query = Query.CLS
    received: FloatArray | None = None
    value_norms: FloatArray | None = None

    def __post_init__(self) -> None:
        both = (len(self.layers), len(self.heads))
        check_shape("LayersMaps", "attention", self.attention, (*both, None, None))
        check_shape("LayersMaps", "prefix", self.prefix, (*both, None))
        check_shape("LayersMaps", "entropy", self.entropy, both)
        if self.distance is not None:
            check_shape("LayersMaps", "distance", self.distance, both)
        for name in ("received", "value_norms"):
            if getattr(self, name) is not None:
                check_shape("LayersMaps", name, getattr(self, name), (*both, self.tokens))

    @property
    def tokens(self) -> int:
        """N: prefix tokens and patches."""
        height, width = self.attention.shape[2:]
        return int(self.prefix.shape[2] + height * width)

    def arrays(self) -> Arrays:
        """Arrays attention (L, H, gh, gw), prefix (L, H, P), entropy (L, H), layers (L,).

        Also heads (H,), distance (L, H) where it was computed, and with sinks received and
        value_norms (L, H, N).
        """
        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            attention=self.attention,
            prefix=self.prefix,
            entropy=self.entropy,
            layers=self.layers,
            distance=self.distance,
            received=self.received,
            value_norms=self.value_norms,
            heads=self.heads,
        )

    @property
    def sink_ratios(self) -> FloatArray | None:
        """Largest over median attention received by a token: (L, H); None without ``received``."""
        from attnviz.domain.row_statistics import sink_ratio

        return None if self.received is None else sink_ratio(self.received)

    @property
    def sink_value_ratios(self) -> FloatArray | None:
        """The norm of the value of the token that receives most, over the median norm: (L, H)."""
        import numpy as np

        if self.received is None or self.value_norms is None:
            return None
        sinks = self.received.argmax(axis=-1)[..., None]
        norms = np.take_along_axis(self.value_norms, sinks, axis=-1)[..., 0]
        median = np.median(self.value_norms, axis=-1)
        ratio = np.divide(norms, median, out=np.full_like(norms, np.inf), where=median > 0)
        return np.asarray(ratio, np.float32)

    def rows(self) -> tuple[Row, ...]:
        """One row a layer and head."""
        from attnviz.domain.row_statistics import map_rows

        return tuple(
            {"layer": layer, "head": head, **row, **sink}
            for index, layer in enumerate(self.layers)
            for head, row, sink in zip(
                self.heads,
                map_rows(
                    self.attention[index],
                    self.prefix[index],
                    self.entropy[index],
                    None if self.distance is None else self.distance[index],
                ),
                self._sink_rows(index),
                strict=True,
            )
        )

    def _sink_rows(self, index: int) -> list[Row]:
        """The sink of every head of a layer; empty rows where they were not asked for."""
        from attnviz.domain.row_statistics import sink_rows

        ratios = self.sink_value_ratios
        if self.received is None or ratios is None:
            return [{} for _ in self.heads]
        values = ratios[index].tolist()
        return [
            {**row, "sink_value_ratio": value}
            for row, value in zip(sink_rows(self.received[index]), values, strict=True)
        ]


LAYERS = Kind(
    name="layers",
    help="""Attention of the CLS token from the first layer to the last.

    The map of every layer, mean over heads, with its entropy, and lines of entropy and attention
    distance over depth. With --sinks a page on the tokens that receive most attention.

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
