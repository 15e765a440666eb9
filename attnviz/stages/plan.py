"""What a run would do, planned before a model is loaded: its pictures and where their files go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attnviz.domain import Precision, RelevanceMethod, sha256_of
from attnviz.domain.options import command_name
from attnviz.domain.requests import RelevanceRequest, no_gradients_in_float16
from attnviz.errors import UsageError
from attnviz.images.find import find_images
from attnviz.output.name import name_values
from attnviz.output.plan import plan_outputs

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain import ImageFile
    from attnviz.domain.requests import CommandRequest, RunRequest
    from attnviz.images.find import FoundImages
    from attnviz.output.plan import OutputPlan


def check_relevance(request: RunRequest) -> None:
    """Raise UsageError for relevance that no model could give, before one is loaded.

    Its second picture is no file, or gradients are asked for in float16, whose range they leave.
    """
    command = request.command
    if not isinstance(command, RelevanceRequest):
        return
    if command.like and not command.like.is_file():
        raise UsageError(f"--like: {command.like} is no file", "give a second picture")
    by_gradient = command.method is not RelevanceMethod.CONTRIBUTION
    if by_gradient and request.model.precision is Precision.FLOAT16:
        raise no_gradients_in_float16()


def plan_request(
    request: RunRequest, into: Path | None = None
) -> tuple[FoundImages, dict[ImageFile, OutputPlan]]:
    """The pictures of a request and where their files go, below ``into`` if that is given.

    Of a shard: its own pictures, and its own part of the inputs that gave nothing.

    Raises:
        UsageError: Names that cannot be given.
    """
    output = request.output
    found = find_images(request.inputs.inputs, exclude=output.folder)
    placed = output if into is None else replace(output, folder=into)
    # Names are settled over all pictures: those of two shards must not meet either.
    command = command_name(request.command)
    values = name_values(command, [request.model], layer_as_written(request.command))
    plans = plan_outputs(found.files, command, placed, values)
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


def like_digest(command: CommandRequest) -> str | None:
    """Hex SHA-256 of the second picture of a command, "" of one that cannot be read; or None."""
    like = command.like if isinstance(command, RelevanceRequest) else None
    return None if like is None else file_digest(like)


def file_digest(path: Path) -> str:
    """Hex SHA-256 of a file, or "" where it cannot be read."""
    try:
        return sha256_of(path.read_bytes())
    except OSError:
        return ""
