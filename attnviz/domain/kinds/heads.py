"""``heads``: the CLS attention of every head of a layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from attnviz.domain.arrays import check_shape
from attnviz.domain.forms import SHARE
from attnviz.domain.kinds.common import (
    DISTANCE,
    HEADS_OPTION,
    LAYER,
    OVERLAY_ONLY,
    QUERY,
)
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps, Sidecar
from attnviz.domain.options import option, switch
from attnviz.domain.query import Query
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.domain.arrays import FloatArray
    from attnviz.domain.kinds.kind import Arrays, Row


@dataclass(frozen=True)
class HeadsRequest(CommandRequest):
    """The CLS attention of every head of a layer."""

    layer: int = LAYER()
    heads: tuple[int, ...] | None = HEADS_OPTION()
    threshold: float | None = option(
        None,
        SHARE,
        "Draw mass masks: the fewest cells that hold this share of the attention.",
        show="no masks",
    )
    overlay: bool = switch("Also clean overlay images, one a head, at the image's own size.")
    distance: bool = DISTANCE()
    query: Query = QUERY()
    overlay_only: bool = OVERLAY_ONLY()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlay_only and self.threshold is not None:
            raise UsageError("--threshold draws in the figure, and --overlay-only draws none")
        if self.overlay_only and self.overlay:
            raise UsageError(
                "--overlay and --overlay-only exclude each other",
                "--overlay: the figure and the overlays",
            )

    @property
    def first_overlay(self) -> str:
        """``head0``, or the head that was named first."""
        return f"head{self.heads[0] if self.heads else 0}"

    @property
    def needs_cls(self) -> bool:
        """Whether only a model with a CLS token can do it."""
        return self.query is Query.CLS

    def for_maps_alone(self) -> Self:
        """Without the mean attention distance, which takes the whole matrix."""
        return replace(self, distance=False)


@dataclass(frozen=True, eq=False)
class HeadsMaps(Maps):
    """CLS attention of the chosen heads of one layer.

    attention (H, gh, gw): raw float32 weights of the patch tokens. prefix (H, P): the weights of
    the prefix tokens, so that attention and prefix of a head sum to 1. entropy (H,): of the whole
    row, nats. heads: the model's index of each entry. What takes the whole matrix is None when it
    was not asked for: distance (H,), the mean attention distance over all patch queries in input
    pixels; to_cls (H, gh, gw), the attention of every patch to CLS; token_entropy (H, N), the
    entropy of every token's row; received (H, N), the attention that every token receives from all
    tokens, the sum of its column. query: whose rows these are.

    With the query ``pool`` the heads are those of the attention pooling, which comes after all
    layers: layer is L. latents (H,): the latent query of each entry, None where there is only one.
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
    latents: tuple[int, ...] | None = None
    received: FloatArray | None = None

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

    def arrays(self) -> Arrays:
        """Arrays attention (H, gh, gw), prefix (H, P), entropy (H,), layer (), heads (H,).

        With several latent queries also latents (H,). With the whole matrix also distance (H,),
        to_cls (H, gh, gw), token_entropy and received (H, N).
        """
        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            attention=self.attention,
            prefix=self.prefix,
            entropy=self.entropy,
            layer=self.layer,
            distance=self.distance,
            to_cls=self.to_cls,
            token_entropy=self.token_entropy,
            heads=self.heads,
            latents=self.latents,
            received=self.received,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """A name of each entry: ``head3``, with several latent queries ``latent1-head3``."""
        if self.latents is None:
            return tuple(f"head{head}" for head in self.heads)
        return tuple(
            f"latent{latent}-head{head}"
            for latent, head in zip(self.latents, self.heads, strict=True)
        )

    def rows(self) -> tuple[Row, ...]:
        """One row a head."""
        from attnviz.domain.row_statistics import map_rows, sink_rows

        numbers = map_rows(self.attention, self.prefix, self.entropy, self.distance)
        latents: list[dict[str, int]] = [{} for _ in self.heads]
        if self.latents is not None:
            latents = [{"latent": latent} for latent in self.latents]
        sinks = sink_rows(self.received) if self.received is not None else [{}] * len(self.heads)
        return tuple(
            {"layer": self.layer, **latent, "head": head, **row, **sink}
            for latent, head, row, sink in zip(latents, self.heads, numbers, sinks, strict=True)
        )


HEADS = Kind(
    name="heads",
    help="""Attention of the CLS token, per head, in one layer.

    The image, each head's map with its entropy, mean and maximum over heads, every head in its own
    colour in one image, and the entropies as bars.

    Example: attnviz heads photo.jpg --model dino_vits8 --threshold 0.6
    """,
    request=HeadsRequest,
    maps=HeadsMaps,
    compute="attnviz.attention.maps:heads_maps",
    draw="attnviz.figures.heads:draw_heads",
    check="attnviz.attention.checks:check_heads",
    overlays="attnviz.figures.overlays:heads_overlays",
    drawn_with=("threshold",),
    sidecars={"overlay": Sidecar("head0.png", "attnviz.stages.sidecars:write_overlays")},
    summarised="attnviz.runs.summary:Summary",
)
