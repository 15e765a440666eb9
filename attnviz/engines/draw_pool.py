"""A pool of processes that draw figures. They never import torch."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker, util
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, Self

from attnviz.domain.process import available_cores, process_is_ours
from attnviz.errors import OutputError
from attnviz.output.atomic import sweep

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from attnviz.output.plan import OutputPlan


PATIENCE_SECONDS = 0.8
"""How long an interrupted run waits for figures that are being drawn."""

WORKERS_MOST = 8
"""Drawing processes by default; so many keep up with any model."""

_PRELOAD = "attnviz.engines.preload"


class DrawJob(Protocol):
    """What a drawing process does: write an image's files, or draw a frame of a video."""

    @property
    def plan(self) -> OutputPlan: ...

    def run(self) -> Any:
        """Do it, and give the result."""


@dataclass(frozen=True, eq=False)
class Pending:
    """A submitted job and its future result."""

    job: DrawJob
    future: Future[Any]


def perform(job: DrawJob) -> Any:
    """Run a job, in whichever process."""
    return job.run()


class Renderer:
    """Runs jobs in ``workers`` processes, or in this process if ``workers`` is 0.

    A process that dies fails only the image that it was drawing: the jobs that were queued behind
    it are drawn again, each in a process of its own, so that one bad image cannot fail the others.
    figures: whether figures are drawn, for which the processes import matplotlib beforehand.
    """

    def __init__(self, workers: int, *, figures: bool = True) -> None:
        self._workers = workers
        self._figures = figures
        self._pool = self._start() if workers else None
        self._folders: set[Path] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.cancel()
        elif self._pool is not None:
            self._pool.shutdown()

    def submit(self, job: DrawJob) -> Pending:
        """Start a job."""
        self._folders.add(job.plan.folder)
        if self._pool is not None:
            try:
                return Pending(job, _submit(self._pool, job))
            except BrokenExecutor as error:
                failed: Future[Any] = Future()
                failed.set_exception(error)
                return Pending(job, failed)
        future: Future[Any] = Future()
        try:
            future.set_result(perform(job))
        except Exception as error:  # noqa: BLE001 - raised again by result(), as from a process
            future.set_exception(error)
        return Pending(job, future)

    def result(self, pending: Pending) -> Any:
        """Wait for the result of a job.

        Raises:
            OutputError: A file cannot be written, or the process that drew it died.
        """
        try:
            return pending.future.result()
        except BrokenExecutor:
            self._replace_pool()
            pool = _start_pool(1, figures=self._figures)
            try:
                return _submit(pool, pending.job).result()
            except BrokenExecutor as error:
                raise OutputError(
                    "the drawing process died, it may have run out of memory",
                    "try a smaller --dpi or fewer --workers",
                ) from error
            finally:
                pool.shutdown()

    def _replace_pool(self) -> None:
        """Start a new pool if a process that died has broken this one."""
        if self._pool is not None and getattr(self._pool, "_broken", False):
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        return _start_pool(self._workers, figures=self._figures)

    def cancel(self) -> None:
        """Drop queued jobs, let running ones finish, and terminate those that take too long."""
        if self._pool is None:
            return
        processes = list(getattr(self._pool, "_processes", {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None
        until = time.monotonic() + PATIENCE_SECONDS
        for process in processes:
            process.join(max(0.0, until - time.monotonic()))
        late = [process for process in processes if process.is_alive()]
        for process in late:
            process.terminate()
        for process in late:
            process.join()
        if late:
            for folder in self._folders:
                sweep(folder)


def make_ready() -> None:
    """Load what drawing needs in the background, while a model is imported and loaded.

    From then on ``is_ready`` is true, and a drawing process starts at once.
    """
    if _context().get_start_method() == "forkserver":
        _start_fork_server()
        _READY.set()


def is_ready() -> bool:
    """Whether a drawing process starts sooner than this process could import matplotlib."""
    return _READY.is_set()


def end_processes() -> None:
    """Kill the drawing processes and the server that starts them; the process is about to end.

    The server would end by itself, but only after it has loaded everything, and slowly. The
    semaphores of a pool are freed as at any end: something else would do it, with a warning.
    """
    server = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if server is not None:
        with suppress(OSError):
            os.kill(server, signal.SIGKILL)
    for process in multiprocessing.active_children():
        process.kill()
    util._run_finalizers(0)  # type: ignore[attr-defined]  # noqa: SLF001


def default_workers(images: int) -> int:
    """How many processes draw the figures of so many images by default."""
    if images == 1:
        # Drawn here, unless a process can begin before this one has imported matplotlib.
        return int(is_ready())
    return max(1, min(WORKERS_MOST, available_cores() - 1))


_READY = threading.Event()


def _context(*, figures: bool = True) -> multiprocessing.context.BaseContext:
    # A fork server starts clean processes quickly and holds no torch; elsewhere they are spawned.
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload([_PRELOAD] if figures else [])
    return context


def _start_fork_server() -> None:
    """Start the server deaf to the Ctrl-C of a terminal, if this process is attnviz's alone.

    It would end with a traceback while it imports. What it starts inherits that; a program that
    uses attnviz may start processes of its own through the same server.
    """
    if not process_is_ours():
        forkserver.ensure_running()
        return
    resource_tracker.ensure_running()  # sets and clears the same mask when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_pool(workers: int, *, figures: bool = True) -> ProcessPoolExecutor:
    context = _context(figures=figures)
    if context.get_start_method() == "forkserver":
        _start_fork_server()
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker)


def _submit(pool: ProcessPoolExecutor, job: DrawJob) -> Future[Any]:
    """Submit a job to a pool, whose processes start here and do not run the user's script again.

    By default they run it for its definitions, which drawing does not need; and a script without
    ``if __name__ == "__main__":`` would start processes of its own there.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        return pool.submit(perform, job)
    finally:
        sys.modules["__main__"] = script


def _begin_worker() -> None:
    """Ignore Ctrl-C, which reaches every process of the terminal: the run's own process decides.

    If that process is killed, nobody else would end this one.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
