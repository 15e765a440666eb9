"""What a run leaves beside its figures: its failures, a table of all images, their summary.

Reads the events of a run on their way to the report; the runs themselves know nothing of it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from attnviz.domain.events import Done, Failed, RunFilesWritten, Skipped, Started
from attnviz.domain.kinds import kind_of
from attnviz.domain.options import resolve
from attnviz.domain.requests import RunRequest
from attnviz.errors import OutputError
from attnviz.output.failures import write_failures
from attnviz.output.table import TableFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from attnviz.domain import ImageFile, ModelInfo, WrittenFile
    from attnviz.domain.events import Event
    from attnviz.domain.requests import InputRequest, OutputRequest


class _Summary(Protocol):
    """What collects the numbers of all images; made from the model's facts."""

    def __init__(self, model: ModelInfo) -> None: ...

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take the table of one image."""

    def write(self, request: RunRequest) -> tuple[WrittenFile, ...]:
        """Write what there is to say about all images; nothing without any."""


class _Request(Protocol):
    """What the requests of all commands that write figures have in common."""

    @property
    def inputs(self) -> InputRequest: ...
    @property
    def output(self) -> OutputRequest: ...


def collect_outputs(request: _Request, events: Iterator[Event]) -> Iterator[Event]:
    """The events of a run, then ``RunFilesWritten`` if it leaves more files than its figures.

    ``failures.csv`` (one for each shard) is written when something failed, and an earlier run's
    removed when nothing did. A run that is interrupted leaves the failures and the table of what it
    finished, and no summary; one that never started leaves everything as it was.

    Raises:
        OutputError: One of the files cannot be written.
        AttnvizError: As the run.
    """
    collector = _Collector(request)
    try:
        for event in events:
            collector.take(event)
            yield event
    except BaseException:
        # The run's own clean-up comes first: it may take a moment, and must not be forgotten.
        close = getattr(events, "close", None)
        if close is not None:
            close()
        with suppress(OutputError):
            collector.write_partial()
        raise
    written = collector.write_all()
    if written:
        yield RunFilesWritten(written)


class _Collector:
    def __init__(self, request: _Request) -> None:
        self._output = request.output
        self._shard = request.inputs.shard
        self._table = TableFile(request.output.table) if request.output.table else None
        # Only runs of one command have a summary.
        self._summarised = (
            request if isinstance(request, RunRequest) and request.output.summary else None
        )
        self._summary: _Summary | None = None
        # Text and not errors, whose tracebacks would keep images in memory.
        self._failures: list[tuple[str, str, str]] = []
        self._started = False

    def take(self, event: Event) -> None:
        match event:
            case Started():
                self._started = True
                if self._summarised is not None:
                    # Needs numpy, which a run whose inputs are wrong does without.
                    collects = kind_of(self._summarised.command).summarised
                    assert collects is not None  # other kinds have no --summary
                    self._summary = resolve(collects)(event.model)
            case Failed():
                self._failures.append((event.name, event.error.message, event.error.hint))
            case Done() | Skipped():
                self._add(event.file, event.table)

    def _add(self, file: ImageFile, rows: tuple[dict[str, Any], ...]) -> None:
        if self._table is not None:
            self._table.add(file.path, rows)
        if self._summary is not None and rows:
            self._summary.add(rows)

    def write_partial(self) -> list[WrittenFile]:
        """Write the failures and the table, of a run that started."""
        if not self._started:
            if self._table is not None:
                self._table.abandon()
            return []
        written = [] if self._table is None else [self._table.close()]
        failures = write_failures(self._output.folder, self._failures, self._shard)
        return written if failures is None else [*written, failures]

    def write_all(self) -> tuple[WrittenFile, ...]:
        """Write everything."""
        written = self.write_partial()
        if self._summary is not None and self._summarised is not None:
            written += self._summary.write(self._summarised)
        return tuple(written)
