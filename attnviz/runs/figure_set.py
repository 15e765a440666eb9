"""Many figures in one go: planned together, then drawn with one model load for each model."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.domain.events import UP_TO_DATE, Skipped, Started
from attnviz.domain.kinds import kind_of
from attnviz.errors import UsageError
from attnviz.output.current import recorded_paths
from attnviz.runs.preview import FigureStatus, preview
from attnviz.stages.plan import check_before_loading, plan_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnviz.domain.config_source import ConfigSource
    from attnviz.domain.events import Event
    from attnviz.domain.requests import ModelRequest, RunRequest
    from attnviz.output.plan import OutputPlan


@dataclass(frozen=True)
class SetFigure:
    """One entry of a set: a command over one or more images, and where it was written."""

    request: RunRequest
    source: ConfigSource


@dataclass(frozen=True)
class PlannedFigure:
    """An entry whose images are known. ``names``: STEM.COMMAND of each; ``number``: from 0."""

    figure: SetFigure
    number: int
    names: tuple[str, ...]

    @property
    def request(self) -> RunRequest:
        """What is asked for."""
        return self.figure.request


def plan_set(figures: Sequence[SetFigure]) -> list[PlannedFigure]:
    """Find all images and settle all destinations; what a named model cannot do raises here.

    Raises:
        UsageError: An image that is not there, two figures that would be written to one file, or an
            option that the named model cannot honour.
    """
    planned = []
    owners: dict[str, SetFigure] = {}
    for number, figure in enumerate(figures):
        with located(figure):
            request = figure.request
            check_before_loading(request.command, request.model, request.inputs)
            found, plans = plan_request(request)
            for _, error in found.missing:
                raise UsageError(f"images: {error.message}", error.hint)
        for plan in plans.values():
            for path in _paths(plan, figure.request):
                owner = owners.setdefault(str(path.absolute()).casefold(), figure)
                if owner is not figure:
                    raise UsageError(
                        f"{figure.source.file}:{figure.source.line}: {path} is also written by "
                        f"the figure of line {owner.source.line}",
                        "give one of them another name or out",
                    )
        names = tuple(f"{plan.stem}.{plan.command}" for plan in plans.values())
        planned.append(PlannedFigure(figure, number, names))
    return planned


def _paths(plan: OutputPlan, request: RunRequest) -> list[Path]:
    command = request.command
    sidecars = kind_of(command).sidecars.items()
    # Of several files beside a figure, as of the overlays, the first stands for all.
    beside = [plan.path(sidecar.tail) for switch, sidecar in sidecars if getattr(command, switch)]
    return [*recorded_paths(plan, request.output), *beside]


def preview_figure(figure: PlannedFigure) -> list[FigureStatus]:
    """What drawing an entry would do, told without its model.

    Raises:
        UsageError: As ``preview``, with the line of the file.
    """
    with located(figure.figure):
        statuses = preview(figure.request)
    if figure.request.output.skip_existing:
        return statuses
    return [dataclasses.replace(status, current=False) for status in statuses]


def draw_set(
    figures: Sequence[PlannedFigure], into: Path | None = None
) -> Iterator[tuple[PlannedFigure, Event]]:
    """Draw all entries, grouped by model; each event comes with the entry that it is of.

    A model is loaded when the first of its figures has to be drawn. ``into``: entry n of the set
    is written below ``into``/n, whatever stands at its place.

    Raises:
        AttnvizError: As ``run``, with the line of the file where an option is to blame.
    """
    total = sum(len(figure.names) for figure in figures)
    for group in _by_model(figures):
        statuses = {id(figure): preview_figure(figure) for figure in group if into is None}
        if statuses and all(status.current for each in statuses.values() for status in each):
            for figure in group:
                for status in statuses[id(figure)]:
                    yield figure, Skipped(status.file, UP_TO_DATE)
            continue
        yield from _draw_group(group, into, total)


def _draw_group(
    group: Sequence[PlannedFigure], into: Path | None, total: int
) -> Iterator[tuple[PlannedFigure, Event]]:
    # They import torch and timm: a set that is current needs neither.
    from attnviz.attention.checks import check_request
    from attnviz.models.load import load_backbone
    from attnviz.runs import command as pipeline

    with located(group[0].figure):
        model = load_backbone(group[0].request.model)
    for figure in group:
        with located(figure.figure):
            check_request(model.info, figure.request.command)
    for index, figure in enumerate(group):
        folder = None if into is None else place_of(figure, into)
        with located(figure.figure):
            for event in pipeline.run(figure.request, model, folder):
                if isinstance(event, Started):
                    notes = pipeline.cost_notes(figure.request, model)
                    notes = event.notes if index == 0 else notes
                    yield figure, dataclasses.replace(event, total=total, notes=notes)
                else:
                    yield figure, event


def place_of(figure: PlannedFigure, into: Path) -> Path:
    """Where ``draw_set`` writes an entry below ``into``: no two entries share a folder."""
    return into / str(figure.number)


def _by_model(figures: Sequence[PlannedFigure]) -> list[list[PlannedFigure]]:
    groups: list[tuple[ModelRequest, list[PlannedFigure]]] = []
    for figure in figures:
        wanted = dataclasses.replace(figure.request.model, verify=False)
        for model, members in groups:
            if model == wanted:
                members.append(figure)
                break
        else:
            groups.append((wanted, [figure]))
    return [members for _, members in groups]


@contextmanager
def located(figure: SetFigure) -> Iterator[None]:
    """A ``UsageError`` about an entry, told with the line that it is written on."""
    try:
        yield
    except UsageError as error:
        raise figure.source.locate(error.message, error.hint) or error from error
