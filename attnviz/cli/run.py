"""From a command's options to a run: the request is built, the run goes on, the report prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.cli.panels import Given, PrintRequest
from attnviz.cli.report import Report
from attnviz.domain import DrawStyle
from attnviz.domain.requests import (
    EngineRequest,
    InputRequest,
    ModelRequest,
    OutputRequest,
    RunRequest,
)
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain.kinds import Kind


def run(request: RunRequest, printing: PrintRequest) -> int:
    """Run one command over its inputs and report it; the exit code.

    Raises:
        AttnvizError: Nothing could be done at all: wrong use, no such model, no way to write.
    """
    from attnviz.runs import command
    from attnviz.runs.collect import collect_outputs

    may_be_empty = request.inputs.shard is not None
    report = Report(as_json=printing.json, quiet=printing.quiet, may_be_empty=may_be_empty)
    return report.consume(collect_outputs(request, command.run(request)))


def run_request(kind: Kind, given: Given, inputs: Sequence[str]) -> RunRequest:
    """Every option read and checked as far as it can be without a model or an image.

    Raises:
        UsageError: A value that no model could honour.
    """
    given.refuse(DrawStyle, kind.unused, kind.name)
    output: OutputRequest = given.make(OutputRequest)
    engine: EngineRequest = given.make(EngineRequest)
    request: RunRequest = given.make(
        RunRequest,
        command=given.make(kind.request).keeping_data(save_data=output.save_data),
        model=model_request(given),
        inputs=given.make(InputRequest, inputs=tuple(inputs)),
        output=output,
        style=given.make(DrawStyle),
        cluster=engine.cluster,
    )
    return request


def model_request(given: Given) -> ModelRequest:
    """The options of the panel Model."""
    request: ModelRequest = given.make(ModelRequest)
    if request.checkpoint_key is not None and request.checkpoint is None:
        raise UsageError("--checkpoint-key needs --checkpoint")
    return request
