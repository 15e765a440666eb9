"""The model stage on a CPU for many pictures: one picture a core instead of one over all cores.

A pass that is split over cores waits for the slowest at every step, and beside a process that draws
one always is slow. So each core has a model of its own; they share the weights. The numbers are
those of one picture over all cores up to rounding: some products then add up in another order.
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
"""Of one block of a picture: more take a core over a second, and an interrupt waits for them."""


class _Stopped(Exception):  # noqa: N818 - a signal, not an error
    """Ends a pass that nobody waits for any more."""


def replicated(stage: ModelStage, pictures: int) -> ModelStage | Replicas:
    """What takes so many pictures fastest: the stage itself, or models side by side."""
    if stage.model.device.type != "cpu" or (stage.request.batch_size or 1) > 1:
        return stage
    count = min(pictures, cores(), MODELS_MOST)
    return Replicas(stage, count) if count > 1 else stage


class Replicas:
    """``count`` models of one stage's weights, each with its share of the cores."""

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
        self, pictures: Iterable[PreparedJob | Skipped | Failed]
    ) -> Generator[ComputedImage | Skipped | Failed, None, None]:
        """As ``ModelStage.outcomes``, in the order of the pictures."""
        self._stopped.clear()
        all_cores = cores()
        each = max(1, all_cores // self._count)
        pool = ThreadPoolExecutor(self._count, "model", initializer=compute_with, initargs=(each,))
        pending: deque[Future[list[ComputedImage | Skipped | Failed]]] = deque()
        try:
            with _cores_back(all_cores):
                for job in pictures:
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
        """Whether a picture may go beside others: in memory, and without holding up an end."""
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
    """Leave this many cores to a model afterwards: the matrix library has one setting for all."""
    try:
        yield
    finally:
        compute_with(count)
