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
from attnviz.domain.video import VideoRequest
from attnviz.errors import UsageError
from attnviz.storage import path_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
    inputs, second = _split_pair(kind, given, inputs)
    output: OutputRequest = given.make(OutputRequest)
    engine: EngineRequest = given.make(EngineRequest)
    request: RunRequest = given.make(
        RunRequest,
        command=given.make(kind.request, **second).keeping_data(save_data=output.save_data),
        model=model_request(given),
        inputs=given.make(InputRequest, inputs=tuple(inputs)),
        output=output,
        style=given.make(DrawStyle),
        cluster=engine.cluster,
        video=given.make(VideoRequest),
    )
    return request


def _split_pair(
    kind: Kind, given: Given, inputs: Sequence[str]
) -> tuple[Sequence[str], dict[str, Path]]:
    """The inputs without the second image of a pair, and that image, if it is one of them."""
    if not kind.pair or len(inputs) < 2 or "like" in given.values[kind.request]:
        return inputs, {}
    return inputs[:-1], {"like": path_of(inputs[-1])}


def check_weights(request: ModelRequest) -> None:
    """Raise for a checkpoint whose header shows that it cannot be loaded, before torch is imported.

    Raises:
        AttnvizError: As ``attnviz.models.weights.header.check_checkpoint``.
    """
    from attnviz.stages.plan import check_weights as check

    check(request)


def model_request(given: Given) -> ModelRequest:
    """The options of the panel Model."""
    request: ModelRequest = given.make(ModelRequest)
    if request.checkpoint_key is not None and request.checkpoint is None:
        raise UsageError("--checkpoint-key needs --checkpoint")
    return request
