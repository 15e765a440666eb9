"""The second image that a command compares with: read, prepared, and run once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.attention.memory import memory_errors
from attnviz.domain import FigureImage, ImageFile, PreparedImage
from attnviz.domain.kinds import CommandRequest, kind_of
from attnviz.domain.options import resolve
from attnviz.domain.requests import InputRequest
from attnviz.images.read import read_input
from attnviz.stages.read import prepare_image

if TYPE_CHECKING:
    from attnviz.models.backbone import Backbone


def read_second(model: Backbone, command: CommandRequest, inputs: InputRequest) -> Any:
    """What the kind makes of a command's second image; None for a command without one.

    The image is prepared as the inputs are.

    Raises:
        ImageError: It cannot be read.
        UsageError: A size that the model cannot take.
        MemoryNeededError: It does not fit into memory.
    """
    path = command.second_image
    if path is None:
        return None
    image = read_input(ImageFile(path, Path(path.name)), inputs)
    return refer_to(model, prepare_image(image, model.info, inputs), command)


def refer_to(model: Backbone, image: PreparedImage, command: CommandRequest) -> Any:
    """The reference that a prepared image makes; see ``Kind.refer``."""
    refer = kind_of(command).refer
    assert refer is not None
    shown = FigureImage(image.image.pixels, image.geometry, image.image.file.path.name)
    with memory_errors(image.geometry.model_input):
        return resolve(refer)(model, model.batch([image]), shown, command)
