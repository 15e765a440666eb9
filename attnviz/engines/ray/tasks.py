"""The three stages as functions that Ray Data calls in its worker processes, on rows of bytes.

A row is one image, pickled. Between reading and the model it holds decoded pixels (uint8) and the
model input, between the model and drawing the maps; only the event of the image comes back. Only
the process of a model imports torch. Expected errors are events already; any other exception is a
bug, and is raised again in the process that started the run.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.domain.events import UP_TO_DATE, Failed, Skipped
from attnviz.domain.process import claim_process
from attnviz.stages.draw import finish, job_of, render
from attnviz.stages.read import ComputedImage, PreparedJob, ReadStage

if TYPE_CHECKING:
    from attnviz.domain import ImageFile, ModelInfo
    from attnviz.domain.requests import RunRequest
    from attnviz.output.plan import OutputPlan

Row = dict[str, Any]
"""``number``: index of the image in the run. ``packed``: the pickled result of the stage."""

NUMBER, PACKED = "number", "packed"


@dataclass(frozen=True)
class Work:
    """One image and where its files go."""

    file: ImageFile
    plan: OutputPlan


@dataclass(frozen=True)
class Fault:
    """An unexpected exception, on its way to the process that started the run."""

    error: BaseException

    @classmethod
    def of(cls, error: Exception) -> Fault:
        """The exception with its traceback as text, since tracebacks cannot be pickled."""
        lines = "".join(traceback.format_exception(error))
        error.add_note(f"In a process of the cluster:\n{lines}")
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301  (made a line before)
        except Exception:  # noqa: BLE001 - whatever its class raises
            return cls(RuntimeError(lines))
        return cls(error)


@dataclass(frozen=True)
class Job:
    """What every task needs to know.

    ``device``: where the model runs. ``folder``: working directory of the process that started the
    run; paths of the request are relative to it.
    """

    request: RunRequest
    info: ModelInfo
    device: str
    folder: str


@dataclass(frozen=True, eq=False)
class _Drawing:
    """An image that went through the model, and where its files go."""

    plan: OutputPlan
    computed: ComputedImage
    rows: tuple[dict[str, Any], ...]


def packed(number: int, value: object) -> Row:
    """Pickle a value into a row."""
    return {NUMBER: number, PACKED: pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)}


def unpacked(row: Row) -> Any:
    """The value of a row that ``packed`` made in this run."""
    return pickle.loads(row[PACKED])  # noqa: S301  (written by this run's own processes)


def read_row(row: Row, job: Job) -> Row:
    """Read one image."""
    _enter(job.folder)
    work: Work = unpacked(row)
    stage = ReadStage(job.request, job.info, job.device)
    return packed(row[NUMBER], _guarded(lambda: (work.plan, stage.read(work.file, work.plan))))


def draw_row(row: Row, job: Job) -> Row:
    """Draw one image; events of earlier stages pass through."""
    drawing = unpacked(row)
    if not isinstance(drawing, _Drawing):
        return row
    _enter(job.folder)
    computed = drawing.computed
    if computed.job.current:
        return packed(row[NUMBER], Skipped(computed.job.file, UP_TO_DATE, drawing.rows))
    figure = job_of(job.request, drawing.plan, computed.job, computed.maps)
    event = _guarded(
        lambda: finish(computed.job, drawing.rows, computed.notes, lambda: render(figure))
    )
    return packed(row[NUMBER], event)


class ModelWorker:
    """A loaded model in a process of its own, for as long as the run lasts.

    ``model``: a list with the object reference of the ``Backbone``, which the process that started
    the run has loaded once for all.
    """

    def __init__(self, job: Job, model: Any, threads: int) -> None:
        claim_process()  # before torch and timm are imported, which unpickling the model would do
        import ray

        from attnviz.engines.replicas import replicated
        from attnviz.models.backbone import compute_with
        from attnviz.models.build import import_timm
        from attnviz.stages.model import ModelStage

        import_timm()
        _enter(job.folder)
        compute_with(threads)
        backbone = ray.get(model[0]).to(job.device)
        self._stage = replicated(ModelStage(job.request, backbone), threads)

    def __call__(self, block: Any) -> Iterator[Any]:
        """Compute the images of a block, an Arrow table; each moves on as soon as it is done."""
        left: dict[str, tuple[int, OutputPlan]] = {}
        jobs: list[PreparedJob] = []
        for number, value in zip(block[NUMBER].to_pylist(), block[PACKED], strict=True):
            read = unpacked({PACKED: value.as_buffer()})
            if isinstance(read, Fault):
                yield _block(packed(number, read))
                continue
            plan, outcome = read
            if isinstance(outcome, PreparedJob):
                left[str(outcome.file.path)] = (number, plan)
                jobs.append(outcome)
            else:
                yield _block(packed(number, outcome))
        try:
            for outcome in self._stage.outcomes(jobs):
                if isinstance(outcome, Failed):
                    yield _block(packed(left.pop(outcome.name)[0], outcome))
                elif isinstance(outcome, ComputedImage):
                    number, plan = left.pop(str(outcome.job.file.path))
                    drawing = _Drawing(plan, outcome, outcome.maps.rows())
                    yield _block(packed(number, drawing))
        except Exception as error:  # noqa: BLE001 - raised again where the run started
            for number, _ in left.values():
                yield _block(packed(number, Fault.of(error)))


def _block(row: Row) -> Any:
    import pyarrow as pa

    return pa.table({name: [value] for name, value in row.items()})


def _guarded(stage: Callable[[], Any]) -> Any:
    try:
        return stage()
    except Exception as error:  # noqa: BLE001 - raised again where the run started
        return Fault.of(error)


def _enter(folder: str) -> None:
    """Change to the folder that relative paths refer to, on machines that have it."""
    with suppress(OSError):
        os.chdir(folder)
