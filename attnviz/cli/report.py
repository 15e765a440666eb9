"""The output of a run: files or records on standard output, everything else on standard error."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from attnviz.cli.ending import last_words
from attnviz.cli.progress import make_progress
from attnviz.domain.events import (
    Done,
    Event,
    Failed,
    FrameDone,
    Interrupted,
    RunFilesWritten,
    Skipped,
    Started,
    Step,
)
from attnviz.errors import UsageError
from attnviz.images.names import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from attnviz.cli.progress import Progress

_NAMES_SHOWN = 3


class Report:
    """Prints the events of one run as they arrive.

    Standard output gets one line per written file, or with ``as_json`` one record per line
    (``status``: done, skipped or failed), so that it can be piped. Progress, notes, tables and the
    summary go to standard error; ``quiet`` leaves only failures there, and the summary if there
    were any. ``may_be_empty``: a run without images is not a failure, as for a shard of few inputs.
    ``tables``: print the numbers of a single image.
    """

    def __init__(
        self,
        *,
        as_json: bool = False,
        quiet: bool = False,
        may_be_empty: bool = False,
        tables: bool = True,
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        self._as_json = as_json
        self._quiet = quiet
        self._may_be_empty = may_be_empty
        self._out = sys.stdout if out is None else out
        self._err = sys.stderr if err is None else err
        self._tables = tables and not quiet
        self._progress: Progress = make_progress(self._err, quiet=quiet)
        self._total = 0
        self._done = 0
        self._skipped = 0
        self._failed = 0
        self._wrong_uses = 0

    def consume(self, events: Iterator[Event]) -> int:
        """Print every event; return the exit code of the run.

        An interrupt or an error that ends the run is raised again, after the progress display has
        been cleared and the summary printed.
        """
        try:
            with self._progress, last_words(self._say_stopped):
                for event in events:
                    self._take(event)
        except BrokenPipeError:
            # The reader of standard output has gone, and would not see a summary.
            raise
        except BaseException:
            self._say_stopped()
            raise
        finally:
            # Clean up (workers, hooks) now, not when the generator is collected.
            close = getattr(events, "close", None)
            if close is not None:
                close()
        return self._finish()

    def _take(self, event: Event) -> None:
        match event:
            case Started():
                self._start(event)
            case Step():
                self._progress.step(event.name, event.done, event.total)
                return
            case FrameDone():
                self._progress.frame(printable(event.file.path.name), event.done, event.total)
                return
            case Interrupted():
                self._interrupted(event)
                return
            case Done():
                self._finish_one(event)
            case Skipped():
                self._skip(event)
            case Failed():
                self._fail(event)
            case RunFilesWritten():
                self._run_files_written(event)
        self._progress.update(self._done + self._skipped, self._failed)

    def _start(self, event: Started) -> None:
        fresh, self._total = event.total != self._total, event.total
        for note in event.notes:
            self._say(f"note: {note}")
        if event.skipped:
            self._say(_skipped_files([(path.name, reason) for path, reason in event.skipped]))
        if fresh:  # a figure set starts again with every model, and counts all its images
            self._progress.start(event.total)

    def _finish_one(self, event: Done) -> None:
        self._done += 1
        for note in event.notes:
            self._say(f"note: {note if event.images else _about(str(event.file.path), note)}")
        if self._total == 1 and event.table and self._tables:
            print_table(event.table, self._err)
        if self._as_json:
            self._emit({"status": "done", **event.record, "notes": list(event.notes)})
        else:
            for file in event.written:
                self._print(str(file.path))

    def _interrupted(self, event: Interrupted) -> None:
        paths = ", ".join(printable(file.path) for file in event.written[:1])
        self._progress.line(
            f"stopped: {printable(event.file.path)} after frame {event.done} of {event.total} "
            f"({event.seconds:.2f} s); what was done is in {paths}"
        )

    def _skip(self, event: Skipped) -> None:
        self._skipped += 1
        if self._as_json:
            self._emit({"status": "skipped", "image": str(event.file.path), "reason": event.reason})

    def _fail(self, event: Failed) -> None:
        # The error is not kept: its traceback would keep the image in memory.
        error = event.error
        self._failed += 1
        self._wrong_uses += isinstance(error, UsageError)
        message = _about(event.name, error.message)
        self._progress.line(f"failed: {message}" + (f"\n  {error.hint}" if error.hint else ""))
        if self._as_json:
            self._emit(
                {
                    "status": "failed",
                    "image": event.name,
                    "error": error.message,
                    "hint": error.hint,
                    "kind": type(error).__name__,
                }
            )

    def _run_files_written(self, event: RunFilesWritten) -> None:
        for file in event.written:
            if file.kind == "failures":
                self._say(f"note: the failures are listed in {printable(file.path)}")
            elif not self._as_json:
                self._print(str(file.path))
            else:
                self._emit({"status": "written", "kind": file.kind, "path": str(file.path)})

    def _finish(self) -> int:
        if not self._finished and self._may_be_empty:
            self._say("no image belongs to this shard")
            return 0
        if not self._finished:
            self._progress.line("error: no images found")
            return 1
        if self._failed or not self._quiet:
            self._progress.line(self._summary())
        if not self._failed:
            return 0
        wrong_use = self._wrong_uses == self._failed
        return 2 if wrong_use and not self._done + self._skipped else 1

    @property
    def _finished(self) -> int:
        return self._done + self._skipped + self._failed

    def _summary(self) -> str:
        # Failed inputs are counted even if the run never started because no image was left.
        parts = [f"{self._done} of {max(self._total, self._finished)} done"]
        if self._skipped:
            parts.append(f"{self._skipped} skipped")
        if self._failed:
            parts.append(f"{self._failed} failed")
        return ", ".join(parts)

    def _say_stopped(self) -> None:
        if self._finished:
            self._say(f"stopped: {self._summary()}")

    def _say(self, line: str) -> None:
        if not self._quiet:
            self._progress.line(line)

    def _emit(self, record: Mapping[str, Any]) -> None:
        self._print(json.dumps(_finite(record), allow_nan=False))

    def _print(self, line: str) -> None:
        self._progress.result(line, self._out)


def print_table(rows: Sequence[Mapping[str, Any]], stream: TextIO) -> None:
    """The rows as a table: text left, numbers right, four significant digits."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        numbers = all(isinstance(row.get(name), int | float | None) for row in rows)
        table.add_column(Text(name), justify="right" if numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(_cell(row.get(name))) for name in rows[0]))
    # A log file has no width; only a terminal may fold the table.
    Console(file=stream, width=None if stream.isatty() else 200).print(table)


def _finite(value: Any) -> Any:
    """The value, with None for numbers that JSON cannot represent."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:#.4g}" if isinstance(value, float) else str(value)


def _about(name: str, message: str) -> str:
    """The message with the full path in it, once."""
    full = printable(name)
    if full in message or name == "-":  # its messages call it standard input
        return message
    return f"{full}: {message.removeprefix(f'{printable(Path(name).name)}: ')}"


def _skipped_files(skipped: Sequence[tuple[str, str]]) -> str:
    names = ", ".join(f"{printable(name)} ({reason})" for name, reason in skipped[:_NAMES_SHOWN])
    more = len(skipped) - _NAMES_SHOWN
    names += f" and {more} more" if more > 0 else ""
    return f"skipped {len(skipped)} file{'s' * (len(skipped) > 1)}: {names}"
