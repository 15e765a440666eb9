"""What a run would write, and what of it is up to date, without loading a model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.kinds import kind_of
from attnviz.domain.register_neurons import read_neurons
from attnviz.domain.requests import run_options
from attnviz.output.current import outputs_up_to_date, recorded_paths
from attnviz.stages.plan import file_digest, plan_request, second_digest

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain import ImageFile
    from attnviz.domain.requests import RunRequest


@dataclass(frozen=True)
class FigureStatus:
    """Where the figures and data of one image go, and whether they are up to date."""

    file: ImageFile
    paths: tuple[Path, ...]
    current: bool


def preview(request: RunRequest) -> list[FigureStatus]:
    """The status of every image: the records of its files compared with image and weights.

    Where the weights are not on this machine, or an image cannot be read, nothing is current.

    Raises:
        UsageError: Names that cannot be given, or a checkpoint that does not exist.
    """
    _, plans = plan_request(request)
    paths = {file: tuple(recorded_paths(plan, request.output)) for file, plan in plans.items()}
    existing = {file for file, files in paths.items() if all(path.is_file() for path in files)}
    wanted = _current_record(request) if existing else None
    return [
        FigureStatus(
            file,
            paths[file],
            current=file in existing
            and wanted is not None
            and outputs_up_to_date(
                plan, request.output, wanted | {"image_sha256": file_digest(file.path)}
            ),
        )
        for file, plan in plans.items()
    ]


def _current_record(request: RunRequest) -> dict[str, object] | None:
    """What the record of a current figure says, but for its image; None without the weights."""
    # It imports torch, which is not needed where nothing exists yet.
    from attnviz.models.digest import weights_digest

    digest = None if request.model.random_weights else weights_digest(request.model)
    if digest is None and not request.model.random_weights:
        return None
    listed = request.model.test_registers
    return {
        "command": kind_of(request.command).name,
        "options": json.loads(json.dumps(run_options(request))),
        "random_weights": request.model.random_weights,
        "like_sha256": second_digest(request.command),
        "weights_sha256": digest,
        "neurons_sha256": None if listed is None else read_neurons(listed).digest,
    }
