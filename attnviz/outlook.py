"""What a run would write, and what of it stands there already: told without loading a model."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attnviz.domain import Precision, RelevanceMethod, sha256_of
from attnviz.errors import UsageError
from attnviz.images.find import find_images
from attnviz.output.plan import plan_outputs
from attnviz.output.record import recorded_paths, stands
from attnviz.requests import RelevanceRequest, no_gradients_in_float16
from attnviz.written import command_name, written_options

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain import ImageFile
    from attnviz.images.find import Found
    from attnviz.output.plan import OutputPlan
    from attnviz.requests import CommandRequest, RunRequest


@dataclass(frozen=True)
class Outlook:
    """One picture: where its figures (and data) go, and whether they are there, made as asked."""

    file: ImageFile
    paths: tuple[Path, ...]
    current: bool


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
) -> tuple[Found, dict[ImageFile, OutputPlan]]:
    """The pictures of a request and where their files go, below ``into`` if that is given.

    Of a shard: its own pictures, and its own part of the inputs that gave nothing.

    Raises:
        UsageError: Names that cannot be given.
    """
    output = request.output
    found = find_images(request.inputs.inputs, exclude=output.folder)
    placed = output if into is None else replace(output, folder=into)
    # Names are settled over all pictures: those of two shards must not meet either.
    plans = plan_outputs(found.files, command_name(request.command), placed)
    shard = request.inputs.shard
    if shard is None:
        return found, plans
    plans = {file: plan for file, plan in plans.items() if shard.holds(file.path)}
    missing = tuple((name, error) for name, error in found.missing if shard.holds(name))
    return replace(found, files=tuple(plans), missing=missing), plans


def outlook(request: RunRequest) -> list[Outlook]:
    """What a run would find for each picture: its files' records against picture and weights.

    Where the weights are not on this machine, or a picture cannot be read, nothing is current.

    Raises:
        UsageError: Names that cannot be given, or a checkpoint that does not exist.
    """
    _, plans = plan_request(request)
    paths = {file: tuple(recorded_paths(plan, request.output)) for file, plan in plans.items()}
    there = [file for file, files in paths.items() if all(path.is_file() for path in files)]
    made = _made_as_asked(request) if there else None
    return [
        Outlook(
            file,
            paths[file],
            current=file in there
            and made is not None
            and stands(plan, request.output, made | {"image_sha256": _digest(file.path)}),
        )
        for file, plan in plans.items()
    ]


def _made_as_asked(request: RunRequest) -> dict[str, object] | None:
    """What the record of a current figure says, but for its picture; None: weights not here."""
    # torch comes with it, and is not needed where nothing stands yet.
    from attnviz.models.digest import weights_digest

    digest = None if request.model.random_weights else weights_digest(request.model)
    if digest is None and not request.model.random_weights:
        return None
    return {
        "command": command_name(request.command),
        "options": json.loads(json.dumps(written_options(request))),
        "random_weights": request.model.random_weights,
        "like_sha256": like_digest(request.command),
        "weights_sha256": digest,
    }


def like_digest(command: CommandRequest) -> str | None:
    """Hex SHA-256 of the second picture of a command, "" of one that cannot be read; or None."""
    like = command.like if isinstance(command, RelevanceRequest) else None
    return None if like is None else _digest(like)


def _digest(path: Path) -> str:
    try:
        return sha256_of(path.read_bytes())
    except OSError:
        return ""
