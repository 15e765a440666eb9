"""The model stage on a CPU for many images: one image per core instead of one over all cores.

A pass that is split over cores waits for the slowest core at every step, and beside a drawing
process one core is always slow. So each core has a model of its own; they share the weights. The
numbers equal those of one image over all cores up to rounding: sums are formed in another order.
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
from attnviz.models.backbone import compute_with, cores, threads
from attnviz.stages.model import ModelStage
from attnviz.stages.read import ComputedImage, PreparedJob

MODELS_MOST = 8

BLOCK_MULTIPLICATIONS_MOST = 30e9
"""In one block, per image: more keep a core busy for over a second, and an interrupt waiting."""


class _Stopped(Exception):  # noqa: N818 - a signal, not an error
    """Ends a pass whose result nobody needs any more."""


def replicated(stage: ModelStage, images: int) -> ModelStage | Replicas:
    """The faster way to process so many images: the stage itself, or replicas of its model."""
    if stage.model.device.type != "cpu" or (stage.request.batch_size or 1) > 1:
        return stage
    count = min(images, cores(), MODELS_MOST)
    return Replicas(stage, count) if count > 1 else stage


class Replicas:
    """``count`` models that share the weights of one stage, each with its share of the cores."""

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
        """As ``ModelStage.outcomes``, in the order of the images."""
        self._stopped.clear()
        before = threads()
        each = max(1, cores() // self._count)
        pool = ThreadPoolExecutor(self._count, "model", initializer=compute_with, initargs=(each,))
        pending: deque[Future[list[ComputedImage | Skipped | Failed]]] = deque()
        try:
            with _threads_restored(before):
                for job in jobs:
                    if isinstance(job, PreparedJob) and not self._has_room(job):
                        while pending:
                            yield from pending.popleft().result()
                        with _threads_restored(each):
                            compute_with(before)
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
        """Whether an image may be computed beside others: it fits, and holds up no interrupt."""
        size: Size = job.prepared.geometry.model_input
        info = self._whole.model.info
        if multiplications(info, size) / info.depth > BLOCK_MULTIPLICATIONS_MOST:
            return False
        return fits_beside(info, size, self._whole.request.command, self._count)

    def _check(self, _module: Any, _inputs: Any) -> None:
        if self._stopped.is_set():
            raise _Stopped


@contextmanager
def _threads_restored(count: int) -> Iterator[None]:
    """Compute with this many threads afterwards: the matrix library has one setting for all."""
    try:
        yield
    finally:
        compute_with(count)
