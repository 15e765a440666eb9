"""From maps to files, for one picture: what a drawing process runs. Never imports torch."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import forkserver
from types import ModuleType
from typing import TYPE_CHECKING, Self

from attnviz.errors import OutputError
from attnviz.output.atomic import sweep
from attnviz.stages.draw import RenderJob, render

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from attnviz.domain import WrittenFile


PATIENCE_SECONDS = 1.0
"""How long an interrupted run waits for figures that are being drawn."""


@dataclass(frozen=True, eq=False)
class Pending:
    """A job that was handed in, and what will become of it."""

    job: RenderJob
    future: Future[tuple[WrittenFile, ...]]


class Renderer:
    """Runs jobs in ``workers`` processes, or in this one when there are none.

    A process that dies costs the picture it was drawing: the others that were waiting for it are
    drawn again, each alone, so that one bad picture cannot take them along.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = _start_pool(workers) if workers else None
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

    def submit(self, job: RenderJob) -> Pending:
        """Start a job."""
        self._folders.add(job.plan.folder)
        if self._pool is not None:
            try:
                return Pending(job, _submitted(self._pool, job))
            except BrokenExecutor as error:
                failed: Future[tuple[WrittenFile, ...]] = Future()
                failed.set_exception(error)
                return Pending(job, failed)
        future: Future[tuple[WrittenFile, ...]] = Future()
        try:
            future.set_result(render(job))
        except Exception as error:  # noqa: BLE001 - raised again by result(), as from a process
            future.set_exception(error)
        return Pending(job, future)

    def result(self, pending: Pending) -> tuple[WrittenFile, ...]:
        """Wait for a job's files.

        Raises:
            OutputError: A file cannot be written, or the process that drew it died.
        """
        try:
            return pending.future.result()
        except BrokenExecutor:
            self._replace_pool()
            alone = _start_pool(1)
            try:
                return _submitted(alone, pending.job).result()
            except BrokenExecutor as error:
                raise OutputError(
                    "the process that drew it died, perhaps for want of memory",
                    "try a smaller --dpi or fewer --workers",
                ) from error
            finally:
                alone.shutdown()

    def _replace_pool(self) -> None:
        """A fresh pool in place of one that a dying process broke."""
        if self._pool is not None and getattr(self._pool, "_broken", False):
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = _start_pool(self._workers)

    def cancel(self) -> None:
        """Drop what has not begun, finish what is being drawn, and end what takes long over it."""
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
            process.join()
        if late:
            for folder in self._folders:
                sweep(folder)


def make_ready() -> None:
    """Have what drawing needs loaded in the background, while a model is imported and loaded.

    From then on ``is_ready``, and a drawing process starts in no time.
    """
    if _context().get_start_method() == "forkserver":
        forkserver.ensure_running()
        _READY.set()


def is_ready() -> bool:
    """Whether a drawing process starts sooner than this process would have drawn by itself."""
    return _READY.is_set()


def default_workers(images: int) -> int:
    """How many processes draw the figures of so many images where nobody says."""
    if images == 1:
        # Drawn here, unless a process is sooner there than this one has loaded matplotlib.
        return int(is_ready())
    return max(1, min(8, (os.cpu_count() or 2) - 1))


_READY = threading.Event()


def _context() -> multiprocessing.context.BaseContext:
    # A fork server starts clean processes quickly and holds no torch; elsewhere they are spawned.
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["attnviz.stages.draw", "attnviz.figures.parts.page"])
    return context


def _start_pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=_context(), initializer=_begin_worker)


def _submitted(pool: ProcessPoolExecutor, job: RenderJob) -> Future[tuple[WrittenFile, ...]]:
    """Hand a job to a pool, whose processes start here and do not run the user's script again.

    They would run it to have what it defines, of which drawing needs nothing; and a script that
    does not guard against that would start processes of its own there.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        return pool.submit(render, job)
    finally:
        sys.modules["__main__"] = script


def _begin_worker() -> None:
    """Ctrl-C reaches every process of the terminal; the run's own process decides what happens.

    When that is killed, nobody else would end this one.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_run, daemon=True).start()


def _end_with_the_run() -> None:
    run = multiprocessing.parent_process()
    if run is not None:
        multiprocessing.connection.wait([run.sentinel])
        os._exit(1)
