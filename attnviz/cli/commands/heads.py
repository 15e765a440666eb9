"""``attnviz heads``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from attnviz.cli.options import (
    DistanceOption,
    LayerOption,
    QueryOption,
    SharedOptions,
    SummaryOption,
)
from attnviz.cli.parse import in_range, optional_indices, parse_index
from attnviz.cli.run import run
from attnviz.domain import Query
from attnviz.domain.requests import HeadsRequest


@dataclass(frozen=True, kw_only=True)
class HeadsOptions(SharedOptions):
    """Options of ``heads``."""

    layer: LayerOption = "-1"
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="0..1",
            help="Draw mass masks: the fewest cells that hold this share of the attention.",
            show_default="no masks",
        ),
    ] = None
    overlay: Annotated[
        bool,
        typer.Option(
            "--overlay", help="Also clean overlay pictures, one a head, at the picture's own size."
        ),
    ] = False
    distance: DistanceOption = True
    query: QueryOption = Query.CLS
    summary: SummaryOption = False


def heads(options: HeadsOptions) -> int:
    """Where the class token looks, head by head, in one layer.

    The picture, each head's map with its entropy, mean and maximum over heads, every head in its
    own colour in one picture, and the entropies as bars.

    Example: attnviz heads photo.jpg --model dino_vits8 --threshold 0.6
    """
    return run(heads_request(options), options)


def heads_request(options: HeadsOptions) -> HeadsRequest:
    """What the options of ``heads`` ask for."""
    threshold = options.threshold
    if threshold is not None:
        in_range("--threshold", threshold, above=0, most=1)
    return HeadsRequest(
        layer=parse_index("--layer", options.layer),
        heads=optional_indices("--heads", options.heads),
        threshold=threshold,
        overlay=options.overlay,
        distance=options.distance,
        query=options.query,
    )
