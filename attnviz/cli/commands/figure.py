"""The commands of the kinds of figures: ``attnviz heads``, ``attnviz rollout`` and the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.cli.panels import Given, PrintRequest, figure_panels
from attnviz.cli.run import run, run_request
from attnviz.cli.signature import with_options
from attnviz.domain.requests import RunRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnviz.domain.kinds import Kind

INPUTS = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="Images: files, folders, globs, addresses (s3://...), or - for a list on standard "
        "input.",
        show_default=False,
    ),
]


def figure_command(kind: Kind) -> Callable[..., int]:
    """The command that draws a kind of figure of every input."""

    def command(given: Given, inputs: INPUTS) -> int:
        return run(run_request(kind, given, inputs), given.make(PrintRequest))

    return with_options(command, *figure_panels(kind), doc=kind.help, name=kind.name)


def figure_parser(kind: Kind) -> Callable[..., RunRequest]:
    """The same command as a parser whose outcome is the request, for figure sets."""

    def parse(given: Given, inputs: INPUTS) -> RunRequest:
        return run_request(kind, given, inputs)

    return with_options(parse, *figure_panels(kind), doc=kind.help, name=kind.name)
