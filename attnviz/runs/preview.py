"""What a run would write, and what of it stands there already: told without loading a model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.kinds import kind_of
from attnviz.domain.requests import run_options
from attnviz.output.current import outputs_up_to_date, recorded_paths
from attnviz.stages.plan import file_digest, plan_request, second_digest

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain import ImageFile
    from attnviz.domain.requests import RunRequest


@dataclass(frozen=True)
class Outlook:
    """One picture: where its figures (and data) go, and whether they are there, made as asked."""

    file: ImageFile
    paths: tuple[Path, ...]
    current: bool


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
            and outputs_up_to_date(
                plan, request.output, made | {"image_sha256": file_digest(file.path)}
            ),
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
        "command": kind_of(request.command).name,
        "options": json.loads(json.dumps(run_options(request))),
        "random_weights": request.model.random_weights,
        "like_sha256": second_digest(request.command),
        "weights_sha256": digest,
    }
