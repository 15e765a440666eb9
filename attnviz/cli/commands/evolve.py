"""``attnviz evolve``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from attnviz.cli.panels import (
    IMAGES,
    MODEL,
    OUTPUT,
    PRINT,
    SHARED_SCALE_DRAWING,
    Given,
    Panel,
    PrintRequest,
)
from attnviz.cli.report import Report
from attnviz.cli.run import check_weights
from attnviz.domain.drawing import SharedScaleStyle
from attnviz.domain.evolution import EvolutionRequest
from attnviz.domain.requests import InputRequest, ModelRequest, OutputRequest
from attnviz.errors import UsageError
from attnviz.storage import path_of

CHECKPOINTS = Annotated[
    list[str],
    typer.Argument(
        metavar="CHECKPOINT",
        help="Files or folders as --checkpoint takes them, in rising order of their numbers.",
        show_default=False,
    ),
]
IMAGE = Annotated[str, typer.Option(metavar="IMAGE", help="The image.", show_default=False)]


def evolve(given: Given, inputs: CHECKPOINTS, image: IMAGE) -> int:
    """How attention changes while a model trains: one image under several checkpoints.

    Checkpoints across, heads of a layer (or layers) down, on one colour scale; entropy and, with a
    mask, the Jaccard index of every row as curves.

    Example: attnviz evolve step00100.pth step00200.pth --image photo.jpg --rows layers
    """
    request = evolve_request(given, inputs, image)
    for path in request.checkpoints:
        check_weights(replace(request.model, checkpoint=path))
    from attnviz.runs.collect import collect_outputs
    from attnviz.runs.evolve import evolve as events

    printing: PrintRequest = given.make(PrintRequest)
    report = Report(as_json=printing.json, quiet=printing.quiet)
    return report.consume(collect_outputs(request, events(request)))


def evolve_request(given: Given, inputs: CHECKPOINTS, image: IMAGE) -> EvolutionRequest:
    """Every option read and checked as far as it can be without a model or an image.

    Raises:
        UsageError: A checkpoint that does not exist, or a value that no model could honour.
    """
    given.refuse(SharedScaleStyle, ("alpha",), "evolve")
    checkpoints = tuple(path_of(name) for name in dict.fromkeys(inputs))
    for path in checkpoints:
        if not path.exists():
            raise UsageError(f"checkpoint {path} does not exist", "give a file or a folder")
    request: EvolutionRequest = given.make(
        EvolutionRequest,
        checkpoints=checkpoints,
        model=given.make(ModelRequest),
        inputs=given.make(InputRequest, inputs=(image,)),
        output=given.make(OutputRequest),
        style=given.make(SharedScaleStyle),
    )
    return request


PANELS = (
    Panel(None, EvolutionRequest),
    MODEL.without("checkpoint", "random-weights"),
    IMAGES,
    SHARED_SCALE_DRAWING,
    OUTPUT,
    PRINT,
)
