"""The stages joined for one picture or many. Prints nothing; what happens is yielded as events.

On one machine: reading runs ahead in threads, the model takes batches of one size in this process
(on a CPU single pictures, one a core), drawing follows behind in processes that never import torch.
Every queue is bounded, so memory stays flat. On a cluster ``attnviz.cluster`` joins the same
stages.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.attention.compute import check_command
from attnviz.attention.tables import table
from attnviz.domain import ImageFile
from attnviz.events import SAME_WORK, Done, Event, Failed, Skipped, Started
from attnviz.images.find import Found
from attnviz.images.fit import check_size
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.outlook import plan_request
from attnviz.output.plan import OutputPlan, check_folder
from attnviz.reference import check_second
from attnviz.render import Pending, Renderer, RenderJob, is_ready
from attnviz.requests import ModelRequest, RunRequest
from attnviz.side_by_side import side_by_side
from attnviz.stages.draw import finish, job_of
from attnviz.stages.model import ModelStage
from attnviz.stages.read import ReadStage, Ready, Seen

if TYPE_CHECKING:
    from attnviz.cluster.connect import Starting
    from attnviz.cluster.engine import ClusterRun

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
    with _cluster(request, found) as starting:
        if found.files:
            model = model or load_backbone(_on_cpu(request.model) if starting else request.model)
            check_command(model.info, request.command)
            check_size(model.info.patch, request.inputs.size, request.inputs.fit)
            total = len(found.files) + len(found.missing)
            work = (
                _Run(request, model, plans)
                if starting is None
                else _on_cluster(starting, request, model, plans)
            )
            yield Started(total, model.info, model.notes, found.skipped)
        for name, error in found.missing:
            yield Failed(name, error)
        if found.files:
            with closing(work.events()) as events:
                yield from events


def _cluster(request: RunRequest, found: Found) -> AbstractContextManager[Starting | None]:
    """The cluster that a request asks for, starting while the model loads; None without one."""
    if request.cluster is None or not found.files:
        return nullcontext()
    # Ray is an extra, and slow to import.
    from attnviz.cluster.connect import cluster

    return cluster(request.cluster)


def _on_cluster(
    starting: Starting, request: RunRequest, model: Backbone, plans: Mapping[ImageFile, OutputPlan]
) -> ClusterRun:
    from attnviz.cluster.engine import ClusterRun

    # Asked for its errors: those of a command's second picture are told before anything runs.
    ModelStage(request, model)
    return ClusterRun(starting.ray(), request, model, plans)


def _on_cpu(model: ModelRequest) -> ModelRequest:
    # The machine where a run on a cluster begins need not have the device that its models run on.
    return replace(model, device="cpu")


class _Run:
    """One run over pictures that exist, with a loaded model."""

    def __init__(
        self, request: RunRequest, model: Backbone, plans: Mapping[ImageFile, OutputPlan]
    ) -> None:
        self.request = request
        self.plans = plans
        self.reading = ReadStage(request, model.info, model.device.type)
        self.modelling = ModelStage(request, model)

    def events(self) -> Generator[Event, None, None]:
        """One event a picture, in the order of the pictures where batches hold one each."""
        workers = self._workers()
        models = side_by_side(self.modelling, len(self.plans))
        with (
            ThreadPoolExecutor(READERS, thread_name_prefix="read") as readers,
            Renderer(workers) as renderer,
        ):
            waiting: deque[tuple[Seen, tuple[dict[str, Any], ...], Pending | None]] = deque()
            try:
                for outcome in models.outcomes(self._read_ahead(readers)):
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
        if len(self.plans) == 1:
            # Drawn here, unless a process is sooner there than this one has loaded matplotlib.
            return int(is_ready())
        return max(1, min(8, (os.cpu_count() or 2) - 1))

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
