"""The stages joined in this process, for one picture or many. Prints nothing; yields events.

Reading runs ahead in threads, the model takes batches of one size in this process, drawing follows
behind in processes that never import torch. Every queue is bounded, so memory stays flat.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from attnviz.attention.compute import check_command
from attnviz.attention.tables import table
from attnviz.domain import ImageFile
from attnviz.events import SAME_WORK, Done, Event, Failed, Skipped, Started
from attnviz.images.fit import check_size
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.outlook import plan_request
from attnviz.output.plan import OutputPlan, check_folder
from attnviz.reference import check_second
from attnviz.render import Pending, Renderer, RenderJob
from attnviz.requests import RunRequest
from attnviz.stages.draw import finish, job_of
from attnviz.stages.model import ModelStage, Seen
from attnviz.stages.read import ReadStage, Ready

READERS = 2


def run(
    request: RunRequest, model: Backbone | None = None, into: Path | None = None
) -> Iterator[Event]:
    """Draw one command's figures of all pictures.

    ``model``: the one that the request names, where it is loaded already. ``into``: write below
    this folder instead of the request's, under the same names.

    Yields one ``Started``, then one ``Done``, ``Skipped`` or ``Failed`` a picture. Without any
    picture only the ``Failed`` of the inputs are yielded and no model is loaded. With
    ``fail_fast`` the first ``Failed`` is the last event.

    Raises:
        AttnvizError: Nothing can be done at all: the options, the model or the output folder.
    """
    with closing(_events(request, model, into)) as events:
        for event in events:
            yield event
            if request.fail_fast and isinstance(event, Failed):
                return


def _events(
    request: RunRequest, model: Backbone | None, into: Path | None
) -> Generator[Event, None, None]:
    check_second(request.command)
    found, plans = plan_request(request, into)
    check_folder(into or request.output.folder, plans.values())
    if found.files:
        model = model or load_backbone(request.model)
        check_command(model.info, request.command)
        check_size(model.info.patch, request.inputs.size, request.inputs.fit)
        total = len(found.files) + len(found.missing)
        work = _Run(request, model, plans)
        yield Started(total, model.info, model.notes, found.skipped)
    for name, error in found.missing:
        yield Failed(name, error)
    if found.files:
        yield from work.events()


class _Run:
    """One run over pictures that exist, with a loaded model."""

    def __init__(
        self, request: RunRequest, model: Backbone, plans: Mapping[ImageFile, OutputPlan]
    ) -> None:
        self.request = request
        self.plans = plans
        self.reading = ReadStage(request, model.info, model.device.type)
        self.modelling = ModelStage(request, model)

    def events(self) -> Iterator[Event]:
        """One event a picture, in the order of the pictures where batches hold one each."""
        workers = self._workers()
        with (
            ThreadPoolExecutor(READERS, thread_name_prefix="read") as readers,
            Renderer(workers) as renderer,
        ):
            waiting: deque[tuple[Seen, tuple[dict[str, Any], ...], Pending | None]] = deque()
            try:
                for outcome in self.modelling.outcomes(self._read_ahead(readers)):
                    if not isinstance(outcome, Seen):
                        yield outcome
                    else:
                        current = outcome.ready.current
                        pending = None if current else renderer.submit(self._job(outcome))
                        waiting.append((outcome, table(outcome.maps), pending))
                    while waiting and (len(waiting) > 2 * workers or _is_done(waiting[0][2])):
                        yield self._finished(renderer, *waiting.popleft())
                while waiting:
                    yield self._finished(renderer, *waiting.popleft())
            except BaseException:
                readers.shutdown(wait=False, cancel_futures=True)
                renderer.cancel()
                raise

    def _workers(self) -> int:
        if self.request.workers is not None:
            return self.request.workers
        # One picture is drawn here: a process would take longer to start than the figure.
        return 0 if len(self.plans) == 1 else max(1, min(8, (os.cpu_count() or 2) - 1))

    def _read_ahead(self, readers: ThreadPoolExecutor) -> Iterator[Ready | Skipped | Failed]:
        window = READERS + 2
        pending: deque[Future[Ready | Skipped | Failed]] = deque()
        for file, plan in self.plans.items():
            pending.append(readers.submit(self.reading.read, file, plan))
            if len(pending) > window:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def _job(self, seen: Seen) -> RenderJob:
        return job_of(self.request, self.plans[seen.ready.file], seen.ready, seen.maps)

    def _finished(
        self,
        renderer: Renderer,
        seen: Seen,
        rows: tuple[dict[str, Any], ...],
        pending: Pending | None,
    ) -> Done | Skipped | Failed:
        if pending is None:
            return Skipped(seen.ready.file, SAME_WORK, rows)
        return finish(seen.ready, rows, seen.notes, lambda: renderer.result(pending))


def _is_done(pending: Pending | None) -> bool:
    return pending is None or pending.future.done()
