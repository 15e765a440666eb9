"""The second stage: images are batched by input size and go through the model."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from attnviz.attention.compute import compute
from attnviz.attention.memory import largest_batch, memory_errors
from attnviz.attention.verify import verify
from attnviz.domain.events import Failed, Skipped
from attnviz.errors import AttnvizError, MemoryNeededError
from attnviz.stages.draw import about
from attnviz.stages.read import ComputedImage, PreparedJob
from attnviz.stages.reference import read_second

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from attnviz.domain import Maps, PreparedImage, Size
    from attnviz.domain.kinds import CommandRequest
    from attnviz.domain.requests import RunRequest
    from attnviz.models.backbone import Backbone

GPU_BATCH = 16


def maps_of(
    model: Backbone,
    images: Sequence[PreparedImage],
    command: CommandRequest,
    reference: Any = None,
) -> list[Maps]:
    """What a command asks for, of images of one input size, in one pass: one result per image.

    reference: the result of ``read_second`` for the command.

    Raises:
        MemoryNeededError: It does not fit into memory.
        AttnvizError: As ``compute``.
    """
    with memory_errors(images[0].geometry.model_input), model.exact_arithmetic():
        geometries = [image.geometry for image in images]
        black = [image.black for image in images]
        return compute(model, model.batch(images), geometries, command, reference, black)


def verified(model: Backbone, images: Sequence[PreparedImage]) -> str:
    """Check every row of every layer, of images of one input size; returns a note for the user.

    Raises:
        AttentionError: Attention times V is not the model's own output.
    """
    with memory_errors(images[0].geometry.model_input):
        deviations = verify(model, model.batch(images))
    layer = max(range(len(deviations)), key=deviations.__getitem__)
    return (
        f"verified: attention times V is the model's own output in all {len(deviations)} "
        f"layers, largest deviation {deviations[layer]:.2g} in layer {layer}"
    )


class ModelStage:
    """The model of one run, which its images go through.

    Raises:
        AttnvizError: The command has a second image, and it cannot be read.
    """

    def __init__(self, request: RunRequest, model: Backbone) -> None:
        self.request = request
        self.model = model
        self.reference = read_second(model, request.command, request.inputs)
        self.fitting: dict[Size, int] = {}

    def replica(self) -> ModelStage:
        """The same stage with its own model, which shares the weights."""
        stage = copy.copy(self)
        stage.model = self.model.replica()
        stage.fitting = {}
        return stage

    def outcomes(
        self, jobs: Iterable[PreparedJob | Skipped | Failed]
    ) -> Iterator[ComputedImage | Skipped | Failed]:
        """Run jobs through the model, batched by input size; other outcomes are passed on."""
        batches: dict[Size, list[PreparedJob]] = {}
        for job in jobs:
            if not isinstance(job, PreparedJob):
                yield job
                continue
            size = job.prepared.geometry.model_input
            batches.setdefault(size, []).append(job)
            try:
                limit = self._batch_limit(size)
            except MemoryNeededError as error:
                del batches[size]
                yield Failed(str(job.file.path), error)
                continue
            if len(batches[size]) >= limit:
                yield from self._through_model(batches.pop(size))
            elif sum(map(len, batches.values())) >= 4 * limit:
                yield from self._through_model(batches.pop(next(iter(batches))))
        for batch in batches.values():
            yield from self._through_model(batch)

    def _batch_limit(self, size: Size) -> int:
        """How many images of a size go through the model together; at least 1."""
        # On a CPU a batch is no faster than its images one by one, and needs more memory.
        wanted = self.request.batch_size or (1 if self.model.device.type == "cpu" else GPU_BATCH)
        fitting = largest_batch(self.model.info, size, self.request.command, self.model.device)
        return max(1, min(wanted, fitting, self.fitting.get(size, wanted)))

    def _through_model(self, batch: list[PreparedJob]) -> Iterator[ComputedImage | Failed]:
        """Maps of a batch; if that fails, in parts, so that one bad image costs only itself.

        A batch that does not fit into memory is halved, and later batches of that input size are
        no larger.
        """
        size = batch[0].prepared.geometry.model_input
        results: list[ComputedImage] = []
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
        # The error is gone by now, and with it the tensors that its traceback referred to.
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        while batch:
            part = min(part, self.fitting.get(size, part))
            yield from self._through_model(batch[:part])
            batch = batch[part:]

    def _compute(self, batch: list[PreparedJob]) -> list[ComputedImage]:
        images = [job.prepared for job in batch]
        notes = (verified(self.model, images),) if self.request.model.verify else ()
        maps = maps_of(self.model, images, self.request.command, self.reference)
        return [ComputedImage(job, each, notes) for job, each in zip(batch, maps, strict=True)]
