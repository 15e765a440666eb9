"""``attnviz.run``: a whole run from Python, with the options of the command line as keywords."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.cli.panels import Given, PrintRequest, figure_panels
from attnviz.cli.progress import in_notebook
from attnviz.cli.report import Report
from attnviz.cli.run import run_request
from attnviz.domain.config_source import field_name
from attnviz.domain.events import Done, Failed, RunFilesWritten, Skipped
from attnviz.domain.kinds import kind_called
from attnviz.domain.near_names import did_you_mean
from attnviz.domain.options import option_fields
from attnviz.domain.requests import ModelRequest
from attnviz.errors import AttnvizError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from attnviz.domain.events import Event
    from attnviz.domain.kinds import Kind
    from attnviz.domain.requests import RunRequest
    from attnviz.models.backbone import Backbone

_NOT_OPTIONS = frozenset(each.name for each in option_fields(PrintRequest))
"""Options about what the command line prints."""


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run left.

    files: every file that was written. done, skipped: the images. failed: each image or input that
    gave nothing, with its error. table: the numbers of all figures, a dict a row, with the path of
    its image under ``image``.
    """

    command: str
    files: tuple[Path, ...]
    done: tuple[Path, ...]
    skipped: tuple[Path, ...]
    failed: tuple[tuple[str, AttnvizError], ...]
    table: list[dict[str, Any]]

    def to_pandas(self) -> Any:
        """``table`` as a pandas DataFrame.

        Raises:
            UsageError: pandas is not installed.
        """
        from attnviz.stages.display import data_frame

        return data_frame(self.table)

    def __repr__(self) -> str:
        parts = [f"{len(self.done)} done"]
        parts += [f"{len(self.skipped)} skipped"] if self.skipped else []
        parts += [f"{len(self.failed)} failed"] if self.failed else []
        files = f"{len(self.files)} file{'s' * (len(self.files) != 1)} written"
        return f"RunResult({self.command}: {', '.join(parts)}; {files})"


def run(
    command: str,
    inputs: str | Path | Iterable[str | Path],
    *,
    model: str | Backbone | None = None,
    quiet: bool = False,
    **options: Any,
) -> RunResult:
    """Draw a kind of figure of many images, as ``attnviz COMMAND INPUT... --OPTION VALUE`` does.

    Args:
        command: A kind of figure: ``"heads"``, ``"rollout"``, ...
        inputs: Files, folders, globs or addresses, one or several.
        model: A name, or a model of ``load_model`` or ``wrap``.
        quiet: No progress, notes and summary; failures are still printed.
        options: The options of the command, spelled as on the command line with ``_`` for ``-``, or
            as in the function of that name: ``out="figures"``, ``format=("png", "pdf")``,
            ``layer=5``, ``threshold=0.6``, ``skip_existing=True``. Values are Python values, or
            text as on the command line.

    Returns:
        The files, failures and numbers. An image that fails does not end the run: see ``failed``.

    Raises:
        UsageError: An option that the command does not have, or a value that no model could honour.
        AttnvizError: Nothing can be done at all: the model, or the output folder.
    """
    from attnviz.runs.collect import collect_outputs
    from attnviz.runs.command import run as run_command

    kind = kind_called(command)
    named = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    for each in named:
        if not isinstance(each, str | Path):
            raise UsageError(
                f"a run reads files, and was given an object of type {type(each).__name__}",
                f"attnviz.{command}(model, image) takes images in memory",
            )
    loaded = _loaded(model)
    if isinstance(model, str):
        options |= {"model": model}
    given = _given(kind, options, loaded)
    request: RunRequest = run_request(kind, given, tuple(map(str, named)))
    if loaded is not None and loaded.request is None and request.cluster is not None:
        raise UsageError("engine: a model in memory cannot be sent to a cluster", "leave it out")
    # In a notebook standard error has the colour of a failure.
    stream = sys.stdout if in_notebook() else sys.stderr
    report = Report(quiet=quiet, may_be_empty=True, tables=False, out=io.StringIO(), err=stream)
    collected = _Collected(may_be_empty=request.inputs.shard is not None)
    report.consume(collected.read(collect_outputs(request, run_command(request, loaded))))
    return collected.result(command)


def _loaded(model: Any) -> Backbone | None:
    """The model, if it is one and not a name.

    Raises:
        UsageError: Neither of the two.
    """
    if model is None or isinstance(model, str):
        return None
    from attnviz.models.backbone import Backbone  # with torch, which a wrong option does without

    if isinstance(model, Backbone):
        return model
    raise UsageError(
        f"an object of type {type(model).__name__} is not a loaded model",
        "give a name, or attnviz.wrap(module)",
    )


def _given(kind: Kind, options: dict[str, Any], loaded: Backbone | None) -> Given:
    """The values of keywords, by request class and field."""
    options_of_kind = [
        (panel.request, each)
        for panel in figure_panels(kind)
        for each in panel.options()
        if each.name not in _NOT_OPTIONS
    ]
    # The functions of single images call some of them otherwise (``depths``), as the fields do.
    known = {each.field.name: (request, each) for request, each in options_of_kind}
    known |= {field_name(each.name): (request, each) for request, each in options_of_kind}
    values: dict[type, dict[str, Any]] = {panel.request: {} for panel in figure_panels(kind)}
    for name, value in options.items():
        if name not in known:
            hint = did_you_mean(name, known) or f"see attnviz {kind.name} --help"
            raise UsageError(f"unknown option {name!r} of {kind.name}", hint)
        request, each = known[name]
        if request is ModelRequest and loaded is not None:
            raise UsageError(
                f"{name} says how a model is loaded, and the model is loaded already",
                "leave it out, or give the name of the model",
            )
        taken = each.take(value)
        if taken is not None:
            values[request][each.field.name] = taken
    if loaded is not None and loaded.request is not None:
        own = option_fields(ModelRequest)
        values[ModelRequest] = {
            each.field.name: getattr(loaded.request, each.field.name) for each in own
        }
    return Given(values)


class _Collected:
    """What a run's events say, taken on their way to the report."""

    def __init__(self, *, may_be_empty: bool) -> None:
        self._may_be_empty = may_be_empty
        self._files: list[Path] = []
        self._done: list[Path] = []
        self._skipped: list[Path] = []
        self._failed: list[tuple[str, AttnvizError]] = []
        self._table: list[dict[str, Any]] = []

    def read(self, events: Iterator[Event]) -> Iterator[Event]:
        try:
            for event in events:
                self._take(event)
                yield event
            if not (self._may_be_empty or self._done or self._skipped or self._failed):
                raise UsageError("no images found", "name files, or folders that hold some")
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()

    def _take(self, event: Event) -> None:
        match event:
            case Done():
                self._done.append(event.file.path)
                self._files += [file.path for file in event.written]
                self._table += [{"image": str(event.file.path), **row} for row in event.table]
            case Skipped():
                self._skipped.append(event.file.path)
            case Failed():
                self._failed.append((event.name, event.error))
            case RunFilesWritten():
                self._files += [file.path for file in event.written]

    def result(self, command: str) -> RunResult:
        return RunResult(
            command,
            tuple(self._files),
            tuple(self._done),
            tuple(self._skipped),
            tuple(self._failed),
            self._table,
        )
