"""The second picture that ``relevance`` compares with: read, prepared, and run once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.attention.memory import memory_errors
from attnviz.attention.relevance import Reference, reference_of
from attnviz.domain import ImageFile, Picture, PreparedImage
from attnviz.domain.requests import CommandRequest, InputRequest, RelevanceRequest
from attnviz.images.fit import prepare
from attnviz.images.read import read_input

if TYPE_CHECKING:
    from attnviz.models.backbone import Backbone


def read_second(model: Backbone, command: CommandRequest, inputs: InputRequest) -> Reference | None:
    """The second picture of a command, fitted as the inputs are; None for a command without one.

    Raises:
        ImageError: It cannot be read.
        UsageError: A size that the model cannot take.
        MemoryNeededError: It does not fit into memory.
    """
    path = command.like if isinstance(command, RelevanceRequest) else None
    if path is None:
        return None
    image = read_input(ImageFile(path, Path(path.name)), inputs)
    prepared = prepare(image, model.info, inputs.size, inputs.fit, inputs.mean, inputs.std)
    return refer_to(model, prepared)


def refer_to(model: Backbone, image: PreparedImage) -> Reference:
    """The reference that a prepared picture makes."""
    picture = Picture(image.image.pixels, image.geometry, image.image.file.path.name)
    with memory_errors(image.geometry.model_input):
        return reference_of(model, model.batch([image]), picture)
