"""``attnviz explore``."""

from __future__ import annotations

from typing import Annotated

import typer

from attnviz.cli.panels import IMAGES, MODEL, QUIET, Given, Panel, PrintRequest
from attnviz.cli.report import Report
from attnviz.cli.run import check_weights, model_request
from attnviz.domain.explorer import ExploreRequest
from attnviz.domain.requests import InputRequest

IMAGE = Annotated[str, typer.Argument(metavar="IMAGE", help="One image.", show_default=False)]


def explore(given: Given, image: IMAGE) -> int:
    """A page to explore an image's attention in a browser: hover a patch, see what it attends to.

    One HTML file that opens from disk and loads nothing: it holds the queries and keys of every
    layer and computes attention where it is looked at.

    Example: attnviz explore photo.jpg --model dino_vits8 -o photo.html
    """
    request: ExploreRequest = given.make(
        ExploreRequest,
        model=model_request(given),
        inputs=given.make(InputRequest, inputs=(image,)),
    )
    check_weights(request.model)
    # torch comes with it.
    from attnviz.runs.explore import explore as events

    printing: PrintRequest = given.make(PrintRequest)
    return Report(quiet=printing.quiet).consume(events(request))


PANELS = (
    Panel(None, ExploreRequest),
    MODEL,
    IMAGES,
    QUIET,
)
