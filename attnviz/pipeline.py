"""The stages joined, for one picture or many. Prints nothing; what happens is yielded as events.

Reading runs ahead in threads, the model takes batches of one size in this process, drawing follows
behind in processes that never import torch. Every queue is bounded, so memory stays flat.
"""

from __future__ import annotations

import os
import platform
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from attnviz._version import __version__
from attnviz.attention.compute import check_command, compute
from attnviz.attention.memory import largest_batch
from attnviz.attention.tables import table
from attnviz.attention.verify import verify
from attnviz.domain import ImageFile, Maps, PreparedImage, Provenance, Size
from attnviz.errors import AttnvizError, MemoryNeededError
from attnviz.events import SAME_WORK, Done, Event, Failed, Skipped, Started
from attnviz.images.fit import check_size, prepare
from attnviz.images.read import read_image
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from attnviz.outlook import plan_request
from attnviz.output.plan import OutputPlan, check_folder
from attnviz.output.record import is_current, record_of
from attnviz.render import Pending, Renderer, RenderJob
from attnviz.requests import CommandRequest, RunRequest
from attnviz.written import command_name, written_options

READERS = 2
GPU_BATCH = 16


@dataclass(frozen=True, eq=False)
class _Ready:
    """A picture ready for the model, and how its figure will have been made."""

    file: ImageFile
    prepared: PreparedImage
    provenance: Provenance


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
    found, plans = plan_request(request, into)
    check_folder(into or request.output.folder, plans.values())
    if found.files:
        model = model or load_backbone(request.model)
        check_command(model.info, request.command)
        check_size(model.info.patch, request.inputs.size, request.inputs.fit)
        total = len(found.files) + len(found.missing)
        yield Started(total, model.info, model.notes, found.skipped)
    for name, error in found.missing:
        yield Failed(name, error)
    if found.files and model is not None:
        yield from _Run(request, model, plans).events()


def maps_of(
    model: Backbone, pictures: Sequence[PreparedImage], command: CommandRequest
) -> list[Maps]:
    """What a command asks for, of pictures of one input size, in one pass: one result a picture.

    Raises:
        MemoryNeededError: It does not fit into memory.
        AttnvizError: As ``compute``.
    """
    with _memory_errors(pictures):
        geometries = [picture.geometry for picture in pictures]
        return compute(model, model.batch(pictures), geometries, command)


@contextmanager
def _memory_errors(pictures: Sequence[PreparedImage]) -> Iterator[None]:
    size = pictures[0].geometry.model_input
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise MemoryNeededError(
            f"out of memory at {size} pixels",
            "give a smaller --size, a smaller --batch-size, or --device cpu",
        ) from error
    except RuntimeError as error:
        if "can't allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        raise MemoryNeededError(
            f"out of memory at {size} pixels", "give a smaller --size"
        ) from error


class _Run:
    """One run over pictures that exist, with a loaded model."""

    def __init__(
        self, request: RunRequest, model: Backbone, plans: Mapping[ImageFile, OutputPlan]
    ) -> None:
        self.request = request
        self.model = model
        self.plans = plans
        self.options = written_options(request)
        self.verified: tuple[str, ...] = ()
        self.versions = {
            "attnviz": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "timm", "numpy", "matplotlib", "pillow")},
        }

    def events(self) -> Iterator[Event]:
        """One event a picture, in the order of the pictures where batches hold one each."""
        workers = self._workers()
        with (
            ThreadPoolExecutor(READERS, thread_name_prefix="read") as readers,
            Renderer(workers) as renderer,
        ):
            waiting: deque[tuple[_Ready, tuple[dict[str, Any], ...], Pending]] = deque()
            try:
                for outcome in self._outcomes(readers):
                    if not isinstance(outcome, tuple):
                        yield outcome
                    else:
                        ready, maps = outcome
                        waiting.append((ready, table(maps), renderer.submit(self._job(*outcome))))
                    while waiting and (len(waiting) > 2 * workers or waiting[0][2].future.done()):
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

    def _outcomes(
        self, readers: ThreadPoolExecutor
    ) -> Iterator[Skipped | Failed | tuple[_Ready, Maps]]:
        """Pictures read ahead, gathered by input size, and taken through the model."""
        gathered: dict[Size, list[_Ready]] = {}
        for file, future in self._read_ahead(readers):
            try:
                ready = future.result()
            except AttnvizError as error:
                yield Failed(str(file.path), error)
                continue
            if isinstance(ready, Skipped):
                yield ready
                continue
            size = ready.prepared.geometry.model_input
            gathered.setdefault(size, []).append(ready)
            try:
                limit = self._batch_limit(size)
            except MemoryNeededError as error:
                del gathered[size]
                yield Failed(str(file.path), error)
                continue
            if len(gathered[size]) >= limit:
                yield from self._through_model(gathered.pop(size))
            elif sum(map(len, gathered.values())) >= 4 * limit:
                yield from self._through_model(gathered.pop(next(iter(gathered))))
        for batch in gathered.values():
            yield from self._through_model(batch)

    def _batch_limit(self, size: Size) -> int:
        """How many pictures of a size go through the model together; at least 1."""
        # On a CPU a batch is no faster than its pictures one by one, and needs more memory.
        wanted = self.request.batch_size or (1 if self.model.device.type == "cpu" else GPU_BATCH)
        fitting = largest_batch(self.model.info, size, self.request.command, self.model.device)
        return max(1, min(wanted, fitting))

    def _read_ahead(
        self, readers: ThreadPoolExecutor
    ) -> Iterator[tuple[ImageFile, Future[_Ready | Skipped]]]:
        window = READERS + 2
        pending: deque[tuple[ImageFile, Future[_Ready | Skipped]]] = deque()
        for file in self.plans:
            pending.append((file, readers.submit(self._read, file)))
            if len(pending) > window:
                yield pending.popleft()
        yield from pending

    def _read(self, file: ImageFile) -> _Ready | Skipped:
        inputs = self.request.inputs
        image = read_image(file, max_pixels=inputs.max_pixels)
        prepared = prepare(image, self.model.info, inputs.size, inputs.fit, inputs.mean, inputs.std)
        provenance = Provenance(
            command=command_name(self.request.command),
            model=self.model.info,
            image=str(file.path),
            image_sha256=image.sha256,
            geometry=prepared.geometry,
            options=self.options,
            versions=self.versions,
            device=self.model.device.type,
        )
        ready = _Ready(file, prepared, provenance)
        if self.request.output.skip_existing and is_current(
            self.plans[file], self.request.output, provenance
        ):
            return Skipped(file, SAME_WORK)
        return ready

    def _through_model(self, batch: list[_Ready]) -> Iterator[Failed | tuple[_Ready, Maps]]:
        """Maps of a batch; when that fails, one by one, so that one picture costs only itself."""
        try:
            results = self._compute(batch)
        except AttnvizError as error:
            if len(batch) > 1:
                for ready in batch:
                    yield from self._through_model([ready])
                return
            yield Failed(str(batch[0].file.path), _about(batch[0].file, error))
            return
        yield from zip(batch, results, strict=True)

    def _compute(self, batch: list[_Ready]) -> list[Maps]:
        pictures = [ready.prepared for ready in batch]
        if self.request.model.verify:
            self._verify(pictures)
        return maps_of(self.model, pictures, self.request.command)

    def _verify(self, pictures: Sequence[PreparedImage]) -> None:
        with _memory_errors(pictures):
            deviations = verify(self.model, self.model.batch(pictures))
        layer = max(range(len(deviations)), key=deviations.__getitem__)
        note = (
            f"verified: attention times V is the model's own output in all {len(deviations)} "
            f"layers, largest deviation {deviations[layer]:.2g} in layer {layer}"
        )
        self.verified = (note,)

    def _job(self, ready: _Ready, maps: Maps) -> RenderJob:
        return RenderJob(
            maps=maps,
            pixels=ready.prepared.image.pixels,
            provenance=ready.provenance,
            style=self.request.style,
            command=self.request.command,
            output=self.request.output,
            plan=self.plans[ready.file],
        )

    def _finished(
        self,
        renderer: Renderer,
        ready: _Ready,
        rows: tuple[dict[str, Any], ...],
        pending: Pending,
    ) -> Done | Failed:
        try:
            written = renderer.result(pending)
        except AttnvizError as error:
            return Failed(str(ready.file.path), _about(ready.file, error))
        record = record_of(ready.provenance, written, rows)
        notes = (*ready.prepared.image.notes, *self.verified)
        return Done(ready.file, written, record, rows, notes)


def _about(file: ImageFile, error: AttnvizError) -> AttnvizError:
    """The error with the picture's name in front, when it does not say it."""
    if str(file.path) in error.message or file.path.name in error.message:
        return error
    return type(error)(f"{file.path.name}: {error.message}", error.hint)
