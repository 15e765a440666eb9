"""What each command does as an entry of a figure set: plan, preview, and draw.

No torch, until something is drawn or compared with existing files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.attention.checks import check_request
from attnviz.domain.comparison import CompareRequest
from attnviz.domain.evolution import EvolutionRequest
from attnviz.domain.explorer import ExploreRequest
from attnviz.domain.kinds import kind_of
from attnviz.domain.requests import ModelRequest, RunRequest
from attnviz.errors import UsageError
from attnviz.images.find import find_images
from attnviz.output.current import differences, outputs_up_to_date, recorded_paths
from attnviz.output.read_record import read_record
from attnviz.runs import compare_plan, evolve_plan, explore_plan
from attnviz.runs.preview import FigureStatus, preview
from attnviz.stages.plan import check_before_loading, file_digest, plan_request

if TYPE_CHECKING:
    from attnviz.domain import ModelInfo
    from attnviz.domain.events import Event
    from attnviz.images.find import FoundImages
    from attnviz.models.backbone import Backbone
    from attnviz.output.plan import OutputPlan

AnyRequest = RunRequest | CompareRequest | EvolutionRequest | ExploreRequest


@dataclass(frozen=True)
class Planned:
    """Where the files of an entry go: ``names`` are STEM.COMMAND of each figure."""

    folder: Path
    names: tuple[str, ...]
    paths: tuple[Path, ...]


@dataclass(frozen=True)
class SetCommand:
    """A command as an entry of a set.

    plan: raises AttnvizError for images that are not there and names that cannot be given. preview:
    the status of each figure. events: draws, into another folder if one is given; ``model`` is that
    of ``shared_model``, loaded. shared_model: what entries with the same one load together; None
    for commands that load their own. check: raises for what that model cannot do.
    """

    plan: Callable[[Any], Planned]
    preview: Callable[[Any], list[FigureStatus]]
    events: Callable[[Any, Backbone | None, Path | None], Iterator[Event]]
    shared_model: Callable[[Any], ModelRequest | None]
    check: Callable[[ModelInfo, Any], None]


def set_command(request: AnyRequest) -> SetCommand:
    """What a request's command does in a set."""
    return _COMMANDS[type(request)]


def _plan_run(request: RunRequest) -> Planned:
    check_before_loading(request.command, request.model, request.inputs)
    found, plans = plan_request(request)
    _raise_missing(found)
    sidecars = kind_of(request.command).sidecars.items()
    # Of several files beside a figure, as of the overlays, the first stands for all.
    tails = [sidecar.tail for switch, sidecar in sidecars if getattr(request.command, switch)]
    paths = [
        path
        for plan in plans.values()
        for path in (*recorded_paths(plan, request.output), *map(plan.path, tails))
    ]
    return Planned(request.output.folder, tuple(map(_name, plans.values())), tuple(paths))


def _run(request: RunRequest, model: Backbone | None, into: Path | None) -> Iterator[Event]:
    from attnviz.runs import command

    return command.run(request, model, into)


def _plan_comparison(request: CompareRequest) -> Planned:
    if request.relevance is not None:
        for model in request.models:
            check_before_loading(request.relevance, model)
    plan, _ = _comparison(request)
    return Planned(
        request.output.folder, (_name(plan),), tuple(recorded_paths(plan, request.output))
    )


def _preview_comparison(request: CompareRequest) -> list[FigureStatus]:
    plan, found = _comparison(request)
    digests = [file_digest(file.path) for file in found.files]
    current = compare_plan.comparison_up_to_date(request, plan, digests)
    paths = tuple(recorded_paths(plan, request.output))
    return [FigureStatus(found.files[0], paths, current)]


def _comparison(request: CompareRequest) -> tuple[OutputPlan, FoundImages]:
    found = find_images(request.inputs.inputs, exclude=request.output.folder)
    _raise_missing(found)
    return compare_plan.comparison_plan(request, found.files), found


def _compare(request: CompareRequest, _model: object, into: Path | None) -> Iterator[Event]:
    from attnviz.runs.compare import compare

    return compare(request, into)


def _plan_evolution(request: EvolutionRequest) -> Planned:
    _, plan = evolve_plan.evolution_plan(request)
    return Planned(request.output.folder, (_name(plan),), tuple(_evolution_paths(plan, request)))


def _evolution_paths(plan: OutputPlan, request: EvolutionRequest) -> list[Path]:
    paths = recorded_paths(plan, request.output)
    return [*paths, plan.path("gif")] if request.animation else paths


def _preview_evolution(request: EvolutionRequest) -> list[FigureStatus]:
    file, plan = evolve_plan.evolution_plan(request)
    paths = tuple(_evolution_paths(plan, request))
    current = all(path.is_file() for path in paths)
    if current:
        wanted = _evolution_record(request, file.path)
        current = outputs_up_to_date(plan, request.output, wanted)
        current = current and not differences(read_record(paths[-1]) or {}, wanted)
    return [FigureStatus(file, paths, current)]


def _evolution_record(request: EvolutionRequest, image: Path) -> dict[str, Any]:
    """What the record of a current figure says."""
    # They import torch, which is not needed where nothing exists yet.
    from attnviz.models.weights.digest import digest_of
    from attnviz.runs.checkpoint_names import name_checkpoints

    series = name_checkpoints(request.checkpoints)
    return {
        "command": evolve_plan.COMMAND,
        "options": _as_json(evolve_plan.evolution_options(request)),
        "image_sha256": file_digest(image),
        "mask_sha256": None if request.mask is None else file_digest(request.mask),
        "weights_sha256": evolve_plan.joined_digest([digest_of(path) for path in series.paths]),
    }


def _evolve(request: EvolutionRequest, _model: object, into: Path | None) -> Iterator[Event]:
    from attnviz.runs.evolve import evolve

    return evolve(request, into)


def _plan_page(request: ExploreRequest) -> Planned:
    _, target = explore_plan.page_plan(request)
    stem = target.name.removesuffix(target.suffix).removesuffix(f".{explore_plan.COMMAND}")
    return Planned(target.parent, (f"{stem}.{explore_plan.COMMAND}",), (target,))


def _preview_page(request: ExploreRequest) -> list[FigureStatus]:
    found, target = explore_plan.page_plan(request)
    (file,) = found.files
    record = read_record(target) if target.is_file() else None
    current = record is not None and not differences(record, _page_record(request, file.path))
    return [FigureStatus(file, (target,), current)]


def _page_record(request: ExploreRequest, image: Path) -> dict[str, Any]:
    """What the record of a current page says."""
    from attnviz.models.digest import weights_digest

    digest = None if request.model.random_weights else weights_digest(request.model)
    return {
        "command": explore_plan.COMMAND,
        "options": _as_json(explore_plan.page_options(request)),
        "image_sha256": file_digest(image),
        "random_weights": request.model.random_weights,
        # Weights that are not on this machine are those of no page.
        "weights_sha256": digest if digest or request.model.random_weights else "",
    }


def _explore(request: ExploreRequest, model: Backbone | None, into: Path | None) -> Iterator[Event]:
    from attnviz.runs.explore import explore

    return explore(request, model, into)


def _raise_missing(found: FoundImages) -> None:
    for _, error in found.missing:
        raise UsageError(f"images: {error.message}", error.hint)


def _name(plan: OutputPlan) -> str:
    return f"{plan.stem}.{plan.command}"


def _as_json(options: dict[str, Any]) -> Any:
    return json.loads(json.dumps(options))


def _check_run(info: ModelInfo, request: RunRequest) -> None:
    check_request(info, request.command)


def _check_later(_info: ModelInfo, _request: Any) -> None:
    """The run itself checks before it draws."""


def _of_model(request: RunRequest | ExploreRequest) -> ModelRequest:
    return replace(request.model, verify=False)


def _own_models(_request: Any) -> None:
    return None


_COMMANDS: dict[type, SetCommand] = {
    RunRequest: SetCommand(_plan_run, preview, _run, _of_model, _check_run),
    CompareRequest: SetCommand(
        _plan_comparison, _preview_comparison, _compare, _own_models, _check_later
    ),
    EvolutionRequest: SetCommand(
        _plan_evolution, _preview_evolution, _evolve, _own_models, _check_later
    ),
    ExploreRequest: SetCommand(_plan_page, _preview_page, _explore, _of_model, _check_later),
}
