"""Many figures in one go: planned together, then drawn with one model load for each model."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.domain.events import UP_TO_DATE, Skipped, Started
from attnviz.domain.requests import RunRequest
from attnviz.errors import UsageError
from attnviz.runs.set_commands import AnyRequest, Planned, set_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnviz.domain.config_source import ConfigSource
    from attnviz.domain.events import Event
    from attnviz.domain.requests import ModelRequest
    from attnviz.models.backbone import Backbone
    from attnviz.runs.preview import FigureStatus


@dataclass(frozen=True)
class SetFigure:
    """One entry of a set: a command over one or more images, and where it was written.

    skip_existing: whether figures that are up to date are left alone.
    """

    request: AnyRequest
    source: ConfigSource
    skip_existing: bool = True


@dataclass(frozen=True)
class PlannedFigure:
    """An entry whose images are known; ``number``: from 0."""

    figure: SetFigure
    number: int
    planned: Planned

    @property
    def request(self) -> AnyRequest:
        """What is asked for."""
        return self.figure.request

    @property
    def names(self) -> tuple[str, ...]:
        """STEM.COMMAND of each figure."""
        return self.planned.names


def plan_set(figures: Sequence[SetFigure]) -> list[PlannedFigure]:
    """Find all images and settle all destinations; what a named model cannot do raises here.

    Raises:
        UsageError: An image that is not there, two figures that would be written to one file, or an
            option that the named model cannot honour.
    """
    entries = []
    owners: dict[str, SetFigure] = {}
    for number, figure in enumerate(figures):
        with located(figure):
            planned = set_command(figure.request).plan(figure.request)
        for path in planned.paths:
            owner = owners.setdefault(str(path.absolute()).casefold(), figure)
            if owner is not figure:
                raise UsageError(
                    f"{figure.source.file}:{figure.source.line}: {path} is also written by "
                    f"the figure of line {owner.source.line}",
                    "give one of them another name or out",
                )
        entries.append(PlannedFigure(figure, number, planned))
    return entries


def preview_figure(figure: PlannedFigure) -> list[FigureStatus]:
    """What drawing an entry would do, told without its model.

    Raises:
        UsageError: As ``preview``, with the line of the file.
    """
    with located(figure.figure):
        statuses = set_command(figure.request).preview(figure.request)
    if figure.figure.skip_existing:
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
    for model, group in _by_model(figures):
        pending = []
        for figure in group:
            statuses = preview_figure(figure) if into is None else []
            if statuses and all(status.current for status in statuses):
                for status in statuses:
                    yield figure, Skipped(status.file, UP_TO_DATE)
            else:
                pending.append(figure)
        if pending:
            yield from _draw_group(model, pending, into, total)


def _draw_group(
    model: ModelRequest | None, group: Sequence[PlannedFigure], into: Path | None, total: int
) -> Iterator[tuple[PlannedFigure, Event]]:
    loaded = None
    if model is not None:
        # It imports torch and timm: a set that is current needs neither.
        from attnviz.models.load import load_backbone

        with located(group[0].figure):
            loaded = load_backbone(model)
        for figure in group:
            with located(figure.figure):
                set_command(figure.request).check(loaded.info, figure.request)
    for index, figure in enumerate(group):
        folder = None if into is None else place_of(figure, into)
        with located(figure.figure):
            for event in set_command(figure.request).events(figure.request, loaded, folder):
                if isinstance(event, Started):
                    notes = event.notes if index == 0 else _cost(figure.request, loaded)
                    yield figure, dataclasses.replace(event, total=total, notes=notes)
                else:
                    yield figure, event


def place_of(figure: PlannedFigure, into: Path) -> Path:
    """Where ``draw_set`` writes an entry below ``into``: no two entries share a folder."""
    return into / str(figure.number)


def _by_model(
    figures: Sequence[PlannedFigure],
) -> list[tuple[ModelRequest | None, list[PlannedFigure]]]:
    """Entries that share a model, together; one that loads its own models is alone."""
    groups: list[tuple[ModelRequest | None, list[PlannedFigure]]] = []
    for figure in figures:
        wanted = set_command(figure.request).shared_model(figure.request)
        for model, members in groups:
            if wanted is not None and model == wanted:
                members.append(figure)
                break
        else:
            groups.append((wanted, [figure]))
    return groups


@contextmanager
def located(figure: SetFigure) -> Iterator[None]:
    """A ``UsageError`` about an entry, told with the line that it is written on."""
    try:
        yield
    except UsageError as error:
        raise figure.source.locate(error.message, error.hint) or error from error


def _cost(request: AnyRequest, model: Backbone | None) -> tuple[str, ...]:
    """What is said before each figure of a set, since each takes its own time."""
    if model is None or not isinstance(request, RunRequest):
        return ()
    from attnviz.runs.command import cost_notes

    return cost_notes(request, model)
