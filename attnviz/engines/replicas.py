"""The model stage on a CPU for many images: one image per core instead of one over all cores.

A pass that is split over cores waits for the slowest at every step, and next to processes that
draw, one is always slow. So each core has its own replica of the model; replicas share the weights.
The numbers equal those of one image over all cores up to rounding: some sums have another order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from attnviz.attention.memory import fits_beside, multiplications
from attnviz.domain import Size
from attnviz.domain.events import Failed, Skipped
from attnviz.models.backbone import compute_with, cores
from attnviz.stages.model import ModelStage
from attnviz.stages.read import ComputedImage, PreparedJob

MODELS_MOST = 8

BLOCK_MULTIPLICATIONS_MOST = 30e9
"""Of one block of one image: more take a core over a second, which delays an interrupt."""


class _Stopped(Exception):  # noqa: N818 - a signal, not an error
    """Ends a pass whose result is no longer wanted."""


def replicated(stage: ModelStage, images: int) -> ModelStage | Replicas:
    """The fastest way through the model for so many images: the stage itself, or replicas of it."""
    if stage.model.device.type != "cpu" or (stage.request.batch_size or 1) > 1:
        return stage
    count = min(images, cores(), MODELS_MOST)
    return Replicas(stage, count) if count > 1 else stage


class Replicas:
    """``count`` replicas of a stage, which share its weights; each has its share of the cores."""

    def __init__(self, stage: ModelStage, count: int) -> None:
        self._whole = stage
        self._count = count
        self._idle: SimpleQueue[ModelStage] = SimpleQueue()
        self._stopped = threading.Event()
        for _ in range(count):
            replica = stage.replica()
            for block in replica.model.blocks:
                block.register_forward_pre_hook(self._check)
            self._idle.put(replica)

    def outcomes(
        self, jobs: Iterable[PreparedJob | Skipped | Failed]
    ) -> Generator[ComputedImage | Skipped | Failed, None, None]:
        """As ``ModelStage.outcomes``, in the order of the jobs."""
        self._stopped.clear()
        all_cores = cores()
        each = max(1, all_cores // self._count)
        pool = ThreadPoolExecutor(self._count, "model", initializer=compute_with, initargs=(each,))
        pending: deque[Future[list[ComputedImage | Skipped | Failed]]] = deque()
        try:
            with _cores_back(all_cores):
                for job in jobs:
                    if isinstance(job, PreparedJob) and not self._has_room(job):
                        while pending:
                            yield from pending.popleft().result()
                        with _cores_back(each):
                            compute_with(all_cores)
                            yield from self._whole.outcomes([job])
                        continue
                    pending.append(pool.submit(self._take, job))
                    if len(pending) > self._count:
                        yield from pending.popleft().result()
                while pending:
                    yield from pending.popleft().result()
        finally:
            self._stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _take(self, job: PreparedJob | Skipped | Failed) -> list[ComputedImage | Skipped | Failed]:
        if not isinstance(job, PreparedJob):
            return [job]
        stage = self._idle.get()
        try:
            return list(stage.outcomes([job]))
        finally:
            self._idle.put(stage)

    def _has_room(self, job: PreparedJob) -> bool:
        """Whether an image may run next to others: memory, and the time to an interrupt."""
        size: Size = job.prepared.geometry.model_input
        info = self._whole.model.info
        if multiplications(info, size) / info.depth > BLOCK_MULTIPLICATIONS_MOST:
            return False
        return fits_beside(info, size, self._whole.request.command, self._count)

    def _check(self, _module: Any, _inputs: Any) -> None:
        if self._stopped.is_set():
            raise _Stopped


@contextmanager
def _cores_back(count: int) -> Iterator[None]:
    """Set the number of threads to this afterwards: the matrix library has one global setting."""
    try:
        yield
    finally:
        compute_with(count)
