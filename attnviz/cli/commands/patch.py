"""``attnviz patch``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from attnviz.cli.options import LayerOption, SharedOptions
from attnviz.cli.parse import optional_indices, parse_cells, parse_index, parse_points
from attnviz.cli.run import run
from attnviz.domain.requests import PatchRequest


@dataclass(frozen=True, kw_only=True)
class PatchOptions(SharedOptions):
    """Options of ``patch``."""

    layer: LayerOption = "-1"
    at: Annotated[
        list[str],
        typer.Option(
            metavar="ROW,COLUMN",
            help="A patch by its place in the grid, from 0; repeatable.",
            show_default="the centre patch of each quadrant",
        ),
    ] = field(default_factory=list)
    xy: Annotated[
        list[str],
        typer.Option(
            metavar="X,Y",
            help="A patch by a pixel of the original picture; repeatable.",
        ),
    ] = field(default_factory=list)
    each_head: Annotated[
        bool, typer.Option("--each-head", help="A map of every head instead of their mean.")
    ] = False


def patch(options: PatchOptions) -> int:
    """Where single patches look, in one layer.

    Each patch marked on the picture, and its map: the mean over heads, or every head.

    Example: attnviz patch photo.jpg --at 3,7 --xy 240,120
    """
    return run(patch_request(options), options)


def patch_request(options: PatchOptions) -> PatchRequest:
    """What the options of ``patch`` ask for."""
    return PatchRequest(
        layer=parse_index("--layer", options.layer),
        heads=optional_indices("--heads", options.heads),
        cells=parse_cells(options.at),
        points=parse_points(options.xy),
        each_head=options.each_head,
    )
