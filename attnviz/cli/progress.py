"""Progress of a run on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

LINE_SECONDS = 5.0
"""Least time between two lines of a log."""

_NOTEBOOK_SECONDS = 0.1
"""Least time between two states of a bar, each of which is a message to the browser."""


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

    def frame(self, name: str, done: int, total: int) -> None:
        """So many frames of a video are done."""

    def line(self, text: str) -> None:
        """Print a line without breaking the display."""

    def result(self, text: str, stream: TextIO) -> None:
        """Print a line on standard output, which may be the same terminal."""


def make_progress(stream: TextIO, *, quiet: bool) -> Progress:
    """The display that suits the stream."""
    if quiet:
        return LineProgress(stream, seconds=float("inf"))
    if in_notebook():
        return NotebookProgress(stream)
    return BarProgress(stream) if stream.isatty() else LineProgress(stream)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


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
        self._begun = self._last = self._frames_begun = clock()

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

    def frame(self, name: str, done: int, total: int) -> None:
        """Print the frames, their rate and the time left, if the last line is long enough ago."""
        now = self._clock()
        if done <= 1:
            self._frames_begun = now
        if done <= 1 or now - self._last < self._seconds:
            return
        self._last = now
        rate = (done - 1) / max(now - self._frames_begun, 1e-9)
        left = duration((total - done) / rate)
        self.line(f"{name}: frame {done} of {total}, {pace(rate)}, {left} left")

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
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._console = Console(file=stream)
        self._display = Progress(
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
        self._step_display = Progress(
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
        self._frames: TaskID | None = None
        self._begun = self._frames_begun = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._display.stop()
        self._step_display.stop()

    def _show(self, display: RichProgress) -> None:
        display.start()

    def _refresh(self, display: RichProgress) -> None:
        """Nothing: rich draws what has changed by itself."""

    def start(self, total: int) -> None:
        """Show the bar; a single image has none until its first step."""
        if total > 1:
            self._begun = time.monotonic()
            self._task = self._display.add_task("", total=total, rate="", failures="")
            self._show(self._display)

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
        self._refresh(self._display)

    def step(self, name: str, done: int, total: int) -> None:
        """Move the bar of a single image."""
        if self._step_task is None:
            self._step_task = self._step_display.add_task("", total=total)
            self._show(self._step_display)
        self._step_display.update(self._step_task, completed=done, description=name)
        self._refresh(self._step_display)

    def frame(self, name: str, done: int, total: int) -> None:
        """Move the bar of a video: frames, rate, time left."""
        now = time.monotonic()
        if self._frames is None:
            self._frames_begun = now
            self._frames = self._display.add_task("", total=total, rate="", failures="")
            self._display.start()
        rate = (done - 1) / max(now - self._frames_begun, 1e-9)
        self._display.update(
            self._frames,
            completed=done,
            total=total,
            rate=f"{name} {pace(rate)}" if done > 1 else name,
        )
        if done == total:
            self._display.remove_task(self._frames)
            self._frames = None

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def result(self, text: str, stream: TextIO) -> None:
        """Print a line; above the bar where standard output is the same terminal."""
        if stream.isatty():
            self.line(text)
        else:
            print(text, file=stream, flush=True)


class NotebookProgress(BarProgress):
    """The same bar as the output of a notebook cell, where it stays when the run is through.

    Rich's own display in a notebook needs ipywidgets, whose output is lost in a saved notebook.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._stream = stream
        self._handle: Any = None
        self._drawn = 0.0

    def __exit__(self, *_exception: object) -> None:
        """Leave the bar as it is at the end."""
        if self._handle is not None:
            shown = self._display if self._task is not None else self._step_display
            self._handle.update(shown)

    def _show(self, display: RichProgress) -> None:
        from IPython import display as ipython

        show: Any = ipython.display
        self._drawn = time.monotonic()
        self._handle = show(display, display_id=True)

    def _refresh(self, display: RichProgress) -> None:
        now = time.monotonic()
        if now - self._drawn >= _NOTEBOOK_SECONDS:
            self._drawn = now
            self._handle.update(display)

    def line(self, text: str) -> None:
        """Print a line below the bar."""
        print(text, file=self._stream, flush=True)


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
