"""The three stages as what Ray Data calls in its worker processes: rows of bytes in and out.

A row is one picture, packed. Between reading and the model it holds decoded pixels (uint8) and the
model input, between the model and drawing the maps; what comes back is the picture's event alone.
Only the process of a model imports torch. What a stage raises on purpose is an event already;
whatever else goes wrong there is a fault of the program, and is raised again where the run began.
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
from attnviz.stages.draw import finish, job_of, render
from attnviz.stages.read import ComputedImage, PreparedJob, ReadStage

if TYPE_CHECKING:
    from attnviz.domain import ImageFile, ModelInfo
    from attnviz.domain.requests import RunRequest
    from attnviz.output.plan import OutputPlan

Row = dict[str, Any]
"""``number``: the picture's place in the run. ``packed``: the pickled value of the stage."""

NUMBER, PACKED = "number", "packed"


@dataclass(frozen=True)
class Work:
    """One picture and where its files go."""

    file: ImageFile
    plan: OutputPlan


@dataclass(frozen=True)
class Fault:
    """An exception that nobody raises on purpose, on its way to where the run began."""

    error: BaseException

    @classmethod
    def of(cls, error: Exception) -> Fault:
        """The exception with its own traceback in words, which does not travel otherwise."""
        lines = "".join(traceback.format_exception(error))
        error.add_note(f"In a process of the cluster:\n{lines}")
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301  (made a line before)
        except Exception:  # noqa: BLE001 - whatever its class has against it
            return cls(RuntimeError(lines))
        return cls(error)


@dataclass(frozen=True)
class Job:
    """What every task knows: the request, the model's facts, where it runs, and from where.

    ``folder``: where the run began; paths of the request are relative to it.
    """

    request: RunRequest
    info: ModelInfo
    device: str
    folder: str


@dataclass(frozen=True, eq=False)
class _Drawing:
    """A picture that went through the model, and where its files go."""

    plan: OutputPlan
    computed: ComputedImage
    rows: tuple[dict[str, Any], ...]


def packed(number: int, value: object) -> Row:
    """A value as a row."""
    return {NUMBER: number, PACKED: pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)}


def unpacked(row: Row) -> Any:
    """The value of a row that ``packed`` made, in this run and nowhere else."""
    return pickle.loads(row[PACKED])  # noqa: S301  (written by this run's own processes)


def read_row(row: Row, job: Job) -> Row:
    """The first stage of one picture."""
    _enter(job.folder)
    work: Work = unpacked(row)
    stage = ReadStage(job.request, job.info, job.device)
    return packed(row[NUMBER], _guarded(lambda: (work.plan, stage.read(work.file, work.plan))))


def draw_row(row: Row, job: Job) -> Row:
    """The last stage of one picture; events of the stages before pass by."""
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
    """The second stage: one loaded model, in a process of its own, for as long as the run lasts.

    ``model``: holds the reference of the ``Backbone``, which was loaded once where the run began.
    """

    def __init__(self, job: Job, model: Any, threads: int) -> None:
        import ray

        from attnviz.engines.replicas import replicated
        from attnviz.models.backbone import compute_with
        from attnviz.stages.model import ModelStage

        _enter(job.folder)
        compute_with(threads)
        backbone = ray.get(model[0]).to(job.device)
        self._stage = replicated(ModelStage(job.request, backbone), threads)

    def __call__(self, block: Any) -> Iterator[Any]:
        """The pictures of a block, an Arrow table; each goes on when its batch is through."""
        left: dict[str, tuple[int, OutputPlan]] = {}
        pictures: list[PreparedJob] = []
        for number, value in zip(block[NUMBER].to_pylist(), block[PACKED], strict=True):
            read = unpacked({PACKED: value.as_buffer()})
            if isinstance(read, Fault):
                yield _block(packed(number, read))
                continue
            plan, outcome = read
            if isinstance(outcome, PreparedJob):
                left[str(outcome.file.path)] = (number, plan)
                pictures.append(outcome)
            else:
                yield _block(packed(number, outcome))
        try:
            for outcome in self._stage.outcomes(pictures):
                if isinstance(outcome, Failed):
                    yield _block(packed(left.pop(outcome.name)[0], outcome))
                elif isinstance(outcome, ComputedImage):
                    number, plan = left.pop(str(outcome.job.file.path))
                    drawing = _Drawing(plan, outcome, outcome.maps.rows())
                    yield _block(packed(number, drawing))
        except Exception as error:  # noqa: BLE001 - raised again where the run began
            for number, _ in left.values():
                yield _block(packed(number, Fault.of(error)))


def _block(row: Row) -> Any:
    import pyarrow as pa

    return pa.table({name: [value] for name, value in row.items()})


def _guarded(stage: Callable[[], Any]) -> Any:
    try:
        return stage()
    except Exception as error:  # noqa: BLE001 - raised again where the run began
        return Fault.of(error)


def _enter(folder: str) -> None:
    """Relative paths mean what they meant where the run began, on machines that have the folder."""
    with suppress(OSError):
        os.chdir(folder)
