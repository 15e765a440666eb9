"""``attnviz rollout``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from attnviz.cli.options import QueryOption, SharedOptions
from attnviz.cli.parse import in_range, optional_indices, parse_index, parse_indices
from attnviz.cli.run import run
from attnviz.domain import (
    DEFAULT_DISCARD_RATIO,
    DEFAULT_RESIDUAL,
    DiscardOrder,
    Fusion,
    Query,
    RolloutOptions,
)
from attnviz.domain.requests import RolloutRequest


@dataclass(frozen=True, kw_only=True)
class RolloutCommandOptions(SharedOptions):
    """Options of ``rollout``."""

    fusion: Annotated[Fusion, typer.Option(help="How the heads of a layer are joined.")] = (
        Fusion.MEAN
    )
    residual: Annotated[
        float,
        typer.Option(metavar="0..1", help="Share of the identity mixed into each layer; 0: none."),
    ] = DEFAULT_RESIDUAL
    discard_ratio: Annotated[
        float,
        typer.Option(
            metavar="0..1",
            help="Share of each layer's smallest values that become 0; 0 is the paper's rollout.",
        ),
    ] = DEFAULT_DISCARD_RATIO
    discard: Annotated[
        DiscardOrder, typer.Option(help="Discard before or after the identity is mixed in.")
    ] = DiscardOrder.AFTER
    start_layer: Annotated[
        str, typer.Option(metavar="N", help="First layer of the product, from 0.")
    ] = "0"
    layers_shown: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Also show the rollout after these layers, e.g. 2,5,8.",
            show_default="none",
        ),
    ] = None
    query: QueryOption = Query.CLS


def rollout(options: RolloutCommandOptions) -> int:
    """What reaches the class token through all layers (Abnar & Zuidema 2020).

    The picture, the last layer's mean map, the rollout, and the rollout over the picture.

    Example: attnviz rollout photo.jpg --model dino_vits8 --discard-ratio 0
    """
    return run(rollout_request(options), options)


def rollout_request(options: RolloutCommandOptions) -> RolloutRequest:
    """What the options of ``rollout`` ask for."""
    shown = options.layers_shown
    return RolloutRequest(
        options=RolloutOptions(
            fusion=options.fusion,
            residual=in_range("--residual", options.residual, least=0, below=1),
            discard_ratio=in_range("--discard-ratio", options.discard_ratio, least=0, below=1),
            discard=options.discard,
            start_layer=parse_index("--start-layer", options.start_layer),
        ),
        heads=optional_indices("--heads", options.heads),
        depths=() if shown is None else parse_indices("--layers-shown", shown),
        query=options.query,
    )
