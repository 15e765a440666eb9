"""``attnviz explore``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.input_options import ConfigOption, InputOptions, QuietOption
from attnviz.cli.parse import optional_indices
from attnviz.cli.report import Report
from attnviz.cli.run import input_request, model_request
from attnviz.domain import DEFAULT_OUT
from attnviz.storage import path_of


@dataclass(frozen=True, kw_only=True)
class ExploreOptions(InputOptions):
    """Options of ``explore``."""

    image: Annotated[str, typer.Argument(metavar="IMAGE", help="One picture.", show_default=False)]
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Layers to keep in the page, from 0, e.g. -1 or 0,5,11 or 6-11.",
            show_default="all",
        ),
    ] = None
    rollout: Annotated[
        bool,
        typer.Option(
            "--rollout/--no-rollout",
            help="Also the rollout up to each of these layers, which takes every layer's matrix.",
        ),
    ] = True
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            parser=path_of,
            help="The page to write; one that stands there is replaced.",
            show_default=f"{DEFAULT_OUT}/STEM.explore.html",
        ),
    ] = None
    quiet: QuietOption = False
    config: ConfigOption = None


def explore(options: ExploreOptions) -> int:
    """A page to explore a picture's attention in a browser: hover a patch, see what it attends to.

    One HTML file that opens from disk and loads nothing: it holds the queries and keys of every
    layer and computes attention where it is looked at.

    Example: attnviz explore photo.jpg --model dino_vits8 -o photo.html
    """
    layers = optional_indices("--layers", options.layers)
    model = model_request(options)
    inputs = input_request([options.image], options)
    # torch comes with it.
    from attnviz.runs.explore import ExploreRequest
    from attnviz.runs.explore import explore as events

    request = ExploreRequest(model, inputs, layers, options.rollout, options.out)
    return Report(quiet=options.quiet).consume(events(request))
