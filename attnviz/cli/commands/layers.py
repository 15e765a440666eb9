"""``attnviz layers``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from attnviz.cli.options import DistanceOption, QueryOption, SharedOptions, SummaryOption
from attnviz.cli.parse import optional_indices
from attnviz.cli.run import run
from attnviz.domain import Query
from attnviz.domain.requests import LayersRequest


@dataclass(frozen=True, kw_only=True)
class LayersOptions(SharedOptions):
    """Options of ``layers``."""

    layers: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Layers to show, from 0, e.g. 0,5,11 or 6-11 or -2,-1.",
            show_default="all",
        ),
    ] = None
    each_head: Annotated[
        bool, typer.Option("--each-head", help="A grid of every layer and every head.")
    ] = False
    distance: DistanceOption = True
    query: QueryOption = Query.CLS
    summary: SummaryOption = False


def layers(options: LayersOptions) -> int:
    """How the class token's attention changes from the first layer to the last.

    The map of every layer, mean over heads, with its entropy, and lines of entropy and attention
    distance over depth.

    Example: attnviz layers photo.jpg --model dinov2_vits14 --each-head
    """
    return run(layers_request(options), options)


def layers_request(options: LayersOptions) -> LayersRequest:
    """What the options of ``layers`` ask for."""
    return LayersRequest(
        layers=optional_indices("--layers", options.layers),
        heads=optional_indices("--heads", options.heads),
        each_head=options.each_head,
        distance=options.distance,
        query=options.query,
    )
