"""What a run will do, planned before a model is loaded: its images and where their files go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attnviz.attention.checks import check_request
from attnviz.domain import Precision, sha256_of
from attnviz.domain.kinds import kind_of
from attnviz.errors import UsageError, no_gradients_in_float16
from attnviz.images.find import find_images
from attnviz.images.sizes import check_size
from attnviz.models.catalogue import known_info
from attnviz.models.stated import stated_info
from attnviz.models.weights.header import check_checkpoint
from attnviz.output.name import name_values
from attnviz.output.plan import plan_outputs

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain import ImageFile
    from attnviz.domain.kinds import CommandRequest
    from attnviz.domain.requests import InputRequest, ModelRequest, RunRequest
    from attnviz.images.find import FoundImages
    from attnviz.output.plan import OutputPlan


def check_before_loading(
    command: CommandRequest, model: ModelRequest, inputs: InputRequest | None = None
) -> None:
    """Raise for what no model could do, or not the one that is named, before it is loaded.

    Neither torch is imported for it nor anything downloaded.

    Raises:
        UsageError: The second image is not a file; gradients in float16, whose range they leave; a
            layer, head or size that the named model does not have, or that of a checkpoint by its
            config.json or header.
        UnsupportedModelError: It has no CLS token, and the command needs one.
        CheckpointError: The header of the weights shows that they cannot be loaded.
    """
    second = command.second_image
    if second is not None and not second.is_file():
        raise UsageError(f"--like: {second} is not a file", "give a second image")
    if command.needs_gradients and model.precision is Precision.FLOAT16:
        raise no_gradients_in_float16()
    names = check_weights(model)
    info = known_info(model) or stated_info(model, names)
    if info is not None:
        check_request(info, command)
        if inputs is not None:
            check_size(info.patch, inputs.size, inputs.fit)


def check_weights(model: ModelRequest) -> tuple[str, ...]:
    """The names of a checkpoint's tensors; none where its header does not tell, or without one.

    Raises for a checkpoint whose header shows that it cannot be loaded.

    Raises:
        UsageError: No such path, or a folder without config.json or weights.
        CheckpointError: Not a checkpoint, cut off, or in no known layout.
    """
    if model.checkpoint is None:
        return ()
    return check_checkpoint(model.checkpoint, model.checkpoint_key)


def plan_request(
    request: RunRequest, into: Path | None = None
) -> tuple[FoundImages, dict[ImageFile, OutputPlan]]:
    """The images of a request and where their files go, below ``into`` if that is given.

    Of a shard: its own images, and its own part of the inputs that failed.

    Raises:
        UsageError: Names that cannot be given.
    """
    output = request.output
    found = find_images(
        request.inputs.inputs, exclude=output.folder, folders=request.video.as_video
    )
    placed = output if into is None else replace(output, folder=into)
    # Names are assigned over all images, so that two shards do not write the same file.
    command = kind_of(request.command).name
    values = name_values(command, [request.model], layer_as_written(request.command))
    lead = "" if request.command.draws_figure else request.command.first_overlay
    plans = plan_outputs(found.files, command, placed, values, lead)
    shard = request.inputs.shard
    if shard is None:
        return found, plans
    plans = {file: plan for file, plan in plans.items() if shard.holds(file.path)}
    missing = tuple((name, error) for name, error in found.missing if shard.holds(name))
    return replace(found, files=tuple(plans), missing=missing), plans


def layer_as_written(command: CommandRequest) -> int | str | None:
    """The layer of a command; "output" where it is the model's output, None without the option."""
    layer = getattr(command, "layer", None)
    return "output" if layer is None and hasattr(command, "layer") else layer


def second_digest(request: CommandRequest) -> str | None:
    """Hex SHA-256 of the second image of a request, "" of one that cannot be read; or None."""
    second = request.second_image
    return None if second is None else file_digest(second)


def file_digest(path: Path) -> str:
    """Hex SHA-256 of a file, or "" where it cannot be read."""
    try:
        return sha256_of(path.read_bytes())
    except OSError:
        return ""
