"""The second stage: pictures are gathered by input size and taken through the model."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from attnviz.attention.compute import compute
from attnviz.attention.memory import largest_batch, memory_errors
from attnviz.attention.verify import verify
from attnviz.domain.events import Failed, Skipped
from attnviz.errors import AttnvizError, MemoryNeededError
from attnviz.stages.draw import about
from attnviz.stages.read import Ready, Seen
from attnviz.stages.reference import read_second

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from attnviz.attention.relevance import Reference
    from attnviz.domain import Maps, PreparedImage, Size
    from attnviz.domain.requests import CommandRequest, RunRequest
    from attnviz.models.backbone import Backbone

GPU_BATCH = 16


def maps_of(
    model: Backbone,
    pictures: Sequence[PreparedImage],
    command: CommandRequest,
    reference: Reference | None = None,
) -> list[Maps]:
    """What a command asks for, of pictures of one input size, in one pass: one result a picture.

    reference: what ``read_second`` gave for the command.

    Raises:
        MemoryNeededError: It does not fit into memory.
        AttnvizError: As ``compute``.
    """
    with memory_errors(pictures[0].geometry.model_input), model.exact_arithmetic():
        geometries = [picture.geometry for picture in pictures]
        return compute(model, model.batch(pictures), geometries, command, reference)


def verified(model: Backbone, pictures: Sequence[PreparedImage]) -> str:
    """Check every row of every layer of pictures of one input size; what was found, as a note.

    Raises:
        AttentionError: Attention times V is not the model's own output.
    """
    with memory_errors(pictures[0].geometry.model_input):
        deviations = verify(model, model.batch(pictures))
    layer = max(range(len(deviations)), key=deviations.__getitem__)
    return (
        f"verified: attention times V is the model's own output in all {len(deviations)} "
        f"layers, largest deviation {deviations[layer]:.2g} in layer {layer}"
    )


class ModelStage:
    """One model and the pictures of one run that go through it.

    Raises:
        AttnvizError: The command has a second picture, and it cannot be read.
    """

    def __init__(self, request: RunRequest, model: Backbone) -> None:
        self.request = request
        self.model = model
        self.reference = read_second(model, request.command, request.inputs)
        self.fitting: dict[Size, int] = {}

    def replica(self) -> ModelStage:
        """The same stage with a model of its own, which shares the weights."""
        stage = copy.copy(self)
        stage.model = self.model.replica()
        stage.fitting = {}
        return stage

    def outcomes(
        self, pictures: Iterable[Ready | Skipped | Failed]
    ) -> Iterator[Seen | Skipped | Failed]:
        """Pictures gathered by input size and taken through the model; what is none passes by."""
        gathered: dict[Size, list[Ready]] = {}
        for ready in pictures:
            if not isinstance(ready, Ready):
                yield ready
                continue
            size = ready.prepared.geometry.model_input
            gathered.setdefault(size, []).append(ready)
            try:
                limit = self._batch_limit(size)
            except MemoryNeededError as error:
                del gathered[size]
                yield Failed(str(ready.file.path), error)
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
        return max(1, min(wanted, fitting, self.fitting.get(size, wanted)))

    def _through_model(self, batch: list[Ready]) -> Iterator[Seen | Failed]:
        """Maps of a batch; when that fails, in parts, so that one picture costs only itself.

        A batch that does not fit into memory is halved, and from then on no larger one of its
        size is made.
        """
        size = batch[0].prepared.geometry.model_input
        results: list[Seen] = []
        part = len(batch)
        try:
            results = self._compute(batch)
        except AttnvizError as error:
            if len(batch) == 1:
                yield Failed(str(batch[0].file.path), about(batch[0].file, error))
                return
            if isinstance(error, MemoryNeededError):
                self.fitting[size] = len(batch) // 2
            else:
                part = 1
        if results:
            yield from results
            return
        # The error is gone by now, and with it the tensors that its traceback held.
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        while batch:
            part = min(part, self.fitting.get(size, part))
            yield from self._through_model(batch[:part])
            batch = batch[part:]

    def _compute(self, batch: list[Ready]) -> list[Seen]:
        pictures = [ready.prepared for ready in batch]
        notes = (verified(self.model, pictures),) if self.request.model.verify else ()
        maps = maps_of(self.model, pictures, self.request.command, self.reference)
        return [Seen(ready, each, notes) for ready, each in zip(batch, maps, strict=True)]
