"""What a run leaves beside its figures: what failed, the numbers of all pictures, their summary.

Reads the events of a run on their way to whoever shows them; the pipeline knows nothing of it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attnviz.domain.events import Done, Failed, RunFilesWritten, Skipped, Started
from attnviz.domain.requests import RunRequest
from attnviz.errors import OutputError
from attnviz.output.failures import write_failures
from attnviz.output.table import TableFile
from attnviz.runs.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnviz.domain import ImageFile, WrittenFile
    from attnviz.domain.events import Event
    from attnviz.domain.requests import CompareRequest


def collect_outputs(
    request: RunRequest | CompareRequest, events: Iterator[Event]
) -> Iterator[Event]:
    """The events of a run, and one ``RunFilesWritten`` where it leaves more files than its figures.

    ``failures.csv`` (each shard's own) is written when something failed, and an earlier run's
    removed when nothing did. A run that is cut off leaves the failures and the table of what it
    finished, and no summary; one that never started leaves everything as it was.

    Raises:
        OutputError: One of the files cannot be written.
        AttnvizError: As the run.
    """
    gathering = _Gathering(request)
    try:
        for event in events:
            gathering.take(event)
            yield event
    except BaseException:
        # The run's own end comes first: it may take a moment, and is not to be forgotten.
        close = getattr(events, "close", None)
        if close is not None:
            close()
        with suppress(OutputError):
            gathering.keep()
        raise
    written = gathering.finish()
    if written:
        yield RunFilesWritten(written)


class _Gathering:
    def __init__(self, request: RunRequest | CompareRequest) -> None:
        self._request = request
        self._folder = request.output.folder
        self._table = TableFile(request.output.table) if request.output.table else None
        self._summary: Summary | None = None
        # Words and not errors, whose tracebacks would hold on to pictures.
        self._failures: list[tuple[str, str, str]] = []
        self._started = False

    def take(self, event: Event) -> None:
        match event:
            case Started():
                self._started = True
                if self._request.output.summary and isinstance(self._request, RunRequest):
                    self._summary = Summary(event.model)
            case Failed():
                self._failures.append((event.name, event.error.message, event.error.hint))
            case Done() | Skipped():
                self._count(event.file, event.table)

    def _count(self, file: ImageFile, rows: tuple[dict[str, Any], ...]) -> None:
        if self._table is not None:
            self._table.add(file.path, rows)
        if self._summary is not None and rows:
            self._summary.add(rows)

    def keep(self) -> list[WrittenFile]:
        """Write the failures and the table, of a run that started."""
        if not self._started:
            if self._table is not None:
                self._table.abandon()
            return []
        written = [] if self._table is None else [self._table.close()]
        failures = write_failures(self._folder, self._failures, self._request.inputs.shard)
        return written if failures is None else [*written, failures]

    def finish(self) -> tuple[WrittenFile, ...]:
        """Write everything."""
        written = self.keep()
        if self._summary is not None and isinstance(self._request, RunRequest):
            written += self._summary.write(self._request)
        return tuple(written)
