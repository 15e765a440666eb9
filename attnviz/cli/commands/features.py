"""``attnviz features``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from attnviz.cli.options import RunOptions
from attnviz.cli.parse import in_range, parse_cells, parse_index, parse_points
from attnviz.cli.run import run
from attnviz.domain.requests import FeaturesRequest
from attnviz.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class FeaturesOptions(RunOptions):
    """Options of ``features``."""

    layer: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Take the tokens as this layer (block) gives them, from 0; -1 is the last.",
            show_default="the model's output, after its final norm",
        ),
    ] = None
    at: Annotated[
        list[str],
        typer.Option(
            metavar="ROW,COLUMN",
            help="A patch to compare with, by its place in the grid, from 0; repeatable.",
            show_default="the centre patch of each quadrant",
        ),
    ] = field(default_factory=list)
    xy: Annotated[
        list[str],
        typer.Option(
            metavar="X,Y",
            help="A patch to compare with, by a pixel of the original picture; repeatable.",
        ),
    ] = field(default_factory=list)
    foreground: Annotated[
        bool,
        typer.Option(
            "--foreground",
            help="Colours for the foreground alone, which the first component sets apart.",
        ),
    ] = False
    flip_foreground: Annotated[
        bool,
        typer.Option("--flip-foreground", help="Take the other side as the foreground."),
    ] = False
    outlier_threshold: Annotated[
        float | None,
        typer.Option(
            metavar="NORM",
            help="Mark the patches whose norm is higher, e.g. 150 for dinov2_vitg14.",
        ),
    ] = None


def features(options: FeaturesOptions) -> int:
    """What the model says of each patch: its output tokens.

    The first three principal components of the patch tokens as red, green and blue, the norm of
    every token as a map and as a histogram, and how alike each patch is to chosen ones.

    Example: attnviz features photo.jpg --foreground --at 3,7
    """
    return run(features_request(options), options)


def features_request(options: FeaturesOptions) -> FeaturesRequest:
    """What the options of ``features`` ask for."""
    threshold = options.outlier_threshold
    if options.flip_foreground and not options.foreground:
        raise UsageError("--flip-foreground needs --foreground")
    return FeaturesRequest(
        layer=None if options.layer is None else parse_index("--layer", options.layer),
        cells=parse_cells(options.at),
        points=parse_points(options.xy),
        foreground=options.foreground,
        flip_foreground=options.flip_foreground,
        outlier_threshold=None
        if threshold is None
        else in_range("--outlier-threshold", threshold, above=0),
    )
