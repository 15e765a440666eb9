"""A run on a cluster: Ray Data joins the stages, and events arrive as images are finished.

Ray restarts a process that dies and repeats its work once. A block of images that is lost all the
same (an image that kills every process that reads it, a machine that left) is repeated in a second
round, one image at a time and on what the cluster then has, so that one bad image fails alone.
Every image gets one event; files that were written before are written again with the same bytes.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from attnviz.domain import ImageFile
from attnviz.domain.events import Event, Failed
from attnviz.domain.requests import RunRequest
from attnviz.engines.ray.connect import Pool, pool
from attnviz.engines.ray.tasks import (
    NUMBER,
    Fault,
    Job,
    ModelWorker,
    Work,
    draw_row,
    packed,
    read_row,
    unpacked,
)
from attnviz.errors import MemoryNeededError
from attnviz.models.backbone import Backbone
from attnviz.output.plan import OutputPlan

TASK_CPUS = 0.5
"""Reserved by a task that reads or draws: half of the time it waits for a disk or for another."""

RETRIES = 1
"""How often Ray repeats the work of a process that died, in each round."""

STALL_SECONDS = 300.0
"""A round without progress for so long is ended; the next continues with the resources left."""

HELD = 4096
"""So many finished images wait for an earlier one, so that tables keep the order of the images."""

CPU_BLOCK, GPU_BLOCK = 4, 32
"""Images per block: few, so that many processes share them; on a GPU two batches."""


class ClusterRun:
    """One run over existing images, with a loaded model, on a connected cluster."""

    def __init__(
        self, ray: Any, request: RunRequest, model: Backbone, plans: Mapping[ImageFile, OutputPlan]
    ) -> None:
        self._ray = ray
        self._request = request
        self._works = [Work(file, plan) for file, plan in plans.items()]
        self._info = model.info
        # Loaded once, here: other machines need neither the weights file nor network access.
        on_cpu = model if model.device.type == "cpu" else copy.deepcopy(model).to("cpu")
        self._model = ray.put(on_cpu)
        self._cause = ""

    def events(self) -> Generator[Event, None, None]:
        """One event per image, in the order of the images unless one is far behind."""
        held: dict[int, Event] = {}
        due = 0
        with closing(self._outcomes()) as outcomes:
            for number, event in outcomes:
                if number < due:
                    yield event
                    continue
                held[number] = event
                if len(held) > HELD:
                    due = min(held)
                while due in held:
                    yield held.pop(due)
                    due += 1

    def _outcomes(self) -> Generator[tuple[int, Event], None, None]:
        """One event per image, in the order in which they are finished."""
        left = set(range(len(self._works)))
        for block in (self._block(), 1):
            with closing(self._round(sorted(left), block)) as outcomes:
                for number, event in outcomes:
                    # A block that was lost on its way here may have been computed twice.
                    if number in left:
                        left.remove(number)
                        yield number, event
            if not left:
                return
        for number in sorted(left):
            file = self._works[number].file
            yield number, Failed(str(file.path), self._died(file))

    def _block(self) -> int:
        size = self._request.batch_size or 1
        return max(size, GPU_BLOCK if self._pool().gpus else CPU_BLOCK)

    def _pool(self) -> Pool:
        assert self._request.cluster is not None
        return pool(self._ray, self._request.cluster, self._request.model.device)

    def _round(
        self, numbers: Sequence[int], block: int
    ) -> Generator[tuple[int, Event], None, None]:
        """Take these images through the stages; those that are lost get no event."""
        try:
            now = self._pool()
            # Every model gets its share, even of few images.
            block = max(1, min(block, -(-len(numbers) // (2 * now.models))))
            with warnings.catch_warnings():
                # Ray Data warns of deprecated settings that it sets itself.
                warnings.simplefilter("ignore")
                rows = self._dataset(numbers, -(-len(numbers) // block), now).iter_rows()
            for row in rows:
                event = unpacked(row)
                if isinstance(event, Fault):
                    raise event.error
                yield int(row[NUMBER]), event
        except self._losses() as error:
            self._cause = (str(error).splitlines() or [""])[-1].strip() or type(error).__name__

    def _losses(self) -> tuple[type[Exception], ...]:
        from ray.data.exceptions import ExecutionTimeoutError
        from ray.exceptions import RayError

        return RayError, ExecutionTimeoutError

    def _died(self, file: ImageFile) -> MemoryNeededError:
        cause = f" ({self._cause})" if self._cause else ""
        return MemoryNeededError(
            f"{file.path.name}: the process that worked on it died at every attempt{cause}",
            "it may have run out of memory: try a smaller --size or --dpi, or more "
            "--cpus-per-model",
        )

    def _dataset(self, numbers: Sequence[int], blocks: int, now: Pool) -> Any:
        job = Job(self._request, self._info, now.device, os.getcwd())  # noqa: PTH109
        items = [packed(number, self._works[number]) for number in numbers]
        start = self._ray.data.from_items(items, override_num_blocks=blocks)
        _quieten(start.context)
        tasks = {"num_cpus": TASK_CPUS, "max_retries": RETRIES}
        return (
            start.map(partial(read_row, job=job), **tasks)
            .map_batches(
                ModelWorker,
                fn_constructor_args=(job, [self._model], now.threads),
                batch_size=None,
                batch_format="pyarrow",
                compute=self._ray.data.ActorPoolStrategy(size=now.models),
                num_cpus=now.cpus,
                num_gpus=now.gpus,
                max_task_retries=RETRIES,
            )
            .map(partial(draw_row, job=job), **tasks)
        )


def _quieten(context: Any) -> None:
    """Settings of one dataset: no output, and a lost block does not end the run."""
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.max_errored_blocks = -1
    context.execution_no_progress_timeout_s = STALL_SECONDS
