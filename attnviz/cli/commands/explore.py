"""``attnviz explore``."""

from __future__ import annotations

from typing import Annotated

import typer

from attnviz.cli.panels import IMAGES, MODEL, QUIET, Given, Panel, PrintRequest
from attnviz.cli.report import Report
from attnviz.cli.run import check_weights, model_request
from attnviz.domain.explorer import ExploreRequest
from attnviz.domain.requests import InputRequest
from attnviz.errors import UsageError
from attnviz.storage import path_of

IMAGE = Annotated[str, typer.Argument(metavar="IMAGE", help="One image.", show_default=False)]
SECOND = Annotated[
    str | None,
    typer.Argument(metavar="[SECOND]", help="A second image, as with --like.", show_default=False),
]


def explore(given: Given, image: IMAGE, second: SECOND = None) -> int:
    """A page to explore an image's attention in a browser: hover a patch, see what it attends to.

    One HTML file that opens from disk and loads nothing: it holds the queries and keys of every
    layer and computes attention where it is looked at. With a second image the page shows both:
    what is similar to a patch of one lights up in the other, by the cosine of their keys.

    Example: attnviz explore photo.jpg --model dino_vits8 -o photo.html
    """
    request = explore_request(given, image, second)
    check_weights(request.model)
    # torch comes with it.
    from attnviz.runs.explore import explore as events

    printing: PrintRequest = given.make(PrintRequest)
    return Report(quiet=printing.quiet).consume(events(request))


def explore_request(given: Given, image: IMAGE, second: SECOND = None) -> ExploreRequest:
    """Every option read and checked as far as it can be without a model or an image."""
    like = {} if second is None else {"like": path_of(second)}
    if like and "like" in given.values[ExploreRequest]:
        raise UsageError("explore: a page shows two images at most", "leave out --like")
    request: ExploreRequest = given.make(
        ExploreRequest,
        **like,
        model=model_request(given),
        inputs=given.make(InputRequest, inputs=(image,)),
    )
    return request


PANELS = (
    Panel(None, ExploreRequest),
    MODEL,
    IMAGES,
    QUIET,
)
