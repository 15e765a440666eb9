"""The stages joined on one machine, for one image or many.

Threads read ahead, the model takes batches of one size in this process (on a CPU single images, one
per core), and processes that never import torch draw. Every queue is bounded, so that memory stays
flat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from attnviz.domain import ImageFile
from attnviz.domain.events import UP_TO_DATE, Done, Event, Failed, Skipped
from attnviz.domain.requests import RunRequest
from attnviz.engines import draw_pool
from attnviz.engines.draw_pool import Pending, Renderer
from attnviz.engines.replicas import replicated
from attnviz.models.backbone import Backbone
from attnviz.output.plan import OutputPlan
from attnviz.stages.draw import RenderJob, finish, job_of
from attnviz.stages.model import ModelStage
from attnviz.stages.read import ComputedImage, PreparedJob, ReadStage

READERS = 2


class LocalRun:
    """One run over existing images, with a loaded model."""

    def __init__(
        self, request: RunRequest, model: Backbone, plans: Mapping[ImageFile, OutputPlan]
    ) -> None:
        self.request = request
        self.plans = plans
        self.reading = ReadStage(request, model.info, model.device.type)
        self.modelling = ModelStage(request, model)

    def events(self) -> Generator[Event, None, None]:
        """One event per image, in the order of the images where batches hold one each."""
        workers = self.request.workers
        if workers is None:
            workers = draw_pool.default_workers(len(self.plans))
        models = replicated(self.modelling, len(self.plans))
        readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        waiting: deque[tuple[ComputedImage, tuple[dict[str, Any], ...], Pending | None]] = deque()
        with Renderer(workers, figures=self.request.command.draws_figure) as renderer:
            try:
                for outcome in models.outcomes(self._read_ahead(readers)):
                    if not isinstance(outcome, ComputedImage):
                        yield outcome
                    else:
                        current = outcome.job.current
                        pending = None if current else renderer.submit(self._job(outcome))
                        waiting.append((outcome, outcome.maps.rows(), pending))
                    while waiting and (len(waiting) > 2 * workers or _is_done(waiting[0][2])):
                        yield self._finished(renderer, *waiting.popleft())
                while waiting:
                    yield self._finished(renderer, *waiting.popleft())
            finally:
                # Nobody waits for what is still being read when a run is stopped.
                readers.shutdown(wait=False, cancel_futures=True)

    def _read_ahead(self, readers: ThreadPoolExecutor) -> Iterator[PreparedJob | Skipped | Failed]:
        window = READERS + 2
        pending: deque[Future[PreparedJob | Skipped | Failed]] = deque()
        for file, plan in self.plans.items():
            pending.append(readers.submit(self.reading.read, file, plan))
            if len(pending) > window:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def _job(self, computed: ComputedImage) -> RenderJob:
        return job_of(self.request, self.plans[computed.job.file], computed.job, computed.maps)

    def _finished(
        self,
        renderer: Renderer,
        computed: ComputedImage,
        rows: tuple[dict[str, Any], ...],
        pending: Pending | None,
    ) -> Done | Skipped | Failed:
        if pending is None:
            return Skipped(computed.job.file, UP_TO_DATE, rows)
        return finish(computed.job, rows, computed.notes, lambda: renderer.result(pending))


def _is_done(pending: Pending | None) -> bool:
    return pending is None or pending.future.done()
