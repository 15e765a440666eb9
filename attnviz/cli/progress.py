"""Progress of a run on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, Self, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import TaskID

LINE_SECONDS = 5.0
"""Least time between two lines of a log."""


class Progress(Protocol):
    """Shows progress inside a ``with`` block; ``line`` can print beside it at any time."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

    def start(self, total: int) -> None:
        """The number of images is known."""

    def update(self, done: int, failed: int) -> None:
        """So many images are done, and so many have failed."""

    def step(self, name: str, done: int, total: int) -> None:
        """A step of a single image begins; ``done`` of ``total`` steps are complete."""

    def line(self, text: str) -> None:
        """Print a line without breaking the display."""

    def result(self, text: str, stream: TextIO) -> None:
        """Print a line on standard output, which may be the same terminal."""


def make_progress(stream: TextIO, *, quiet: bool) -> Progress:
    """The display that suits the stream."""
    if quiet:
        return LineProgress(stream, seconds=float("inf"))
    return BarProgress(stream) if stream.isatty() else LineProgress(stream)


class LineProgress:
    """Plain lines, at most one every few seconds."""

    def __init__(
        self,
        stream: TextIO,
        *,
        seconds: float = LINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._seconds = seconds
        self._clock = clock
        self._total = 0
        self._begun = self._last = clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        pass

    def start(self, total: int) -> None:
        """The number of images is known; the rate is measured from here."""
        self._total = total
        self._begun = self._last = self._clock()

    def update(self, done: int, failed: int) -> None:
        """Print the progress, if the last line is long enough ago."""
        now = self._clock()
        finished = done + failed
        if not 0 < finished < self._total or now - self._last < self._seconds:
            return
        self._last = now
        rate = finished / (now - self._begun)
        failures = f", {failed} failed" if failed else ""
        left = duration((self._total - finished) / rate)
        self.line(f"{finished} of {self._total}{failures}, {pace(rate)}, {left} left")

    def step(self, name: str, done: int, total: int) -> None:
        """Print the step, if the last line is long enough ago."""
        now = self._clock()
        if now - self._last >= self._seconds:
            self._last = now
            self.line(f"{name}: step {done + 1} of {total}")

    def line(self, text: str) -> None:
        """Print a line."""
        print(text, file=self._stream, flush=True)

    def result(self, text: str, stream: TextIO) -> None:
        """Print a line; flushed, so that the reader of a pipe gets each image as it is done."""
        print(text, file=stream, flush=True)


class BarProgress:
    """Rich's bar: images done, rate, time left, failures; or the steps of a single image."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        self._console = Console(file=stream)
        self._display = RichProgress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[failures]}", style="red"),
            console=self._console,
            transient=True,
            redirect_stdout=False,
        )
        # Steps differ in length: the elapsed time says more than a guess at the remaining time.
        self._step_display = RichProgress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=self._console,
            transient=True,
            redirect_stdout=False,
        )
        self._task: TaskID | None = None
        self._step_task: TaskID | None = None
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._display.stop()
        self._step_display.stop()

    def start(self, total: int) -> None:
        """Show the bar; a single image has none until its first step."""
        if total > 1:
            self._begun = time.monotonic()
            self._task = self._display.add_task("", total=total, rate="", failures="")
            self._display.start()

    def update(self, done: int, failed: int) -> None:
        """Move the bar."""
        if self._task is None:
            return
        finished = done + failed
        rate = finished / max(time.monotonic() - self._begun, 1e-9)
        self._display.update(
            self._task,
            completed=finished,
            rate=pace(rate) if finished else "",
            failures=f"{failed} failed" if failed else "",
        )

    def step(self, name: str, done: int, total: int) -> None:
        """Move the bar of a single image."""
        if self._step_task is None:
            self._step_task = self._step_display.add_task("", total=total)
            self._step_display.start()
        self._step_display.update(self._step_task, completed=done, description=name)

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def result(self, text: str, stream: TextIO) -> None:
        """Print a line; above the bar where standard output is the same terminal."""
        if stream.isatty():
            self.line(text)
        else:
            print(text, file=stream, flush=True)


def pace(rate: float) -> str:
    """``2.4 a second``, or ``5.6 s each`` when it is slower than that."""
    return f"{rate:.2g} a second" if rate >= 1 else f"{1 / rate:.2g} s each"


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
