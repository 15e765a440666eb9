"""``attnviz render``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.cli.check_figures import check_set
from attnviz.cli.report import Report
from attnviz.domain import DEFAULT_TOLERANCE
from attnviz.domain.near_names import did_you_mean
from attnviz.domain.parse import in_range, local_path
from attnviz.errors import UsageError
from attnviz.storage import path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.runs.figure_set import PlannedFigure

DIFF_FOLDER = "attnviz-diff"


def render(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG", parser=local_path, help="A figure set (TOML).", show_default=False
        ),
    ],
    *,
    check: Annotated[
        bool,
        typer.Option("--check", help="Draw elsewhere and compare with the files that are there."),
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="Only say what would be drawn and what is current.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only the figure of that name (STEM or STEM.COMMAND); repeatable.",
            show_default="all",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Draw figures again that are current.")
    ] = False,
    tolerance: Annotated[
        float,
        typer.Option(
            metavar="LEVELS",
            help="What --check lets pass in a figure: root mean square, in levels of 255.",
        ),
    ] = DEFAULT_TOLERANCE,
    diff_out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            parser=path_of,
            help="Where --check puts images of what differs: expected, drawn, difference.",
        ),
    ] = Path(DIFF_FOLDER),
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON record a line on standard output.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress; failures are still reported.")
    ] = False,
) -> int:
    """Draw a figure set: many figures, described in one TOML file.

    Each model is loaded once. A figure that was made from the same image, weights and options is
    left alone, by the record inside it. --check exits with 1 when a figure differs or is missing.

    Example: attnviz render configs/gallery.toml --check
    """
    from attnviz.cli.figure_set import read_figure_set
    from attnviz.runs.figure_set import draw_set, plan_set

    if check and listing:
        raise UsageError("--check and --list exclude each other")
    in_range("--tolerance", tolerance, least=0, most=255)
    figures = _chosen(plan_set(read_figure_set(config, overwrite=overwrite)), only or [])
    if listing:
        _list(figures, as_json=as_json)
        return 0
    if check:
        return check_set(figures, diff_out, tolerance, as_json=as_json, quiet=quiet)
    report = Report(as_json=as_json, quiet=quiet)
    return report.consume(event for _, event in draw_set(figures))


def _chosen(figures: Sequence[PlannedFigure], names: Sequence[str]) -> list[PlannedFigure]:
    """The entries that one of the names means; all without names."""
    if not names:
        return list(figures)
    answers = {figure.number: _answers_to(figure) for figure in figures}
    known = set().union(*answers.values())
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"there are {', '.join(sorted(known))}"
            raise UsageError(f"--only: no figure of the set is called {name!r}", hint)
    return [figure for figure in figures if answers[figure.number] & set(names)]


def _answers_to(figure: PlannedFigure) -> set[str]:
    return {*figure.names, *(name.rpartition(".")[0] for name in figure.names)}


def _list(figures: Sequence[PlannedFigure], *, as_json: bool) -> None:
    from attnviz.runs.figure_set import preview_figure

    for figure in figures:
        for status in preview_figure(figure):
            word = "current" if status.current else "draw"
            for path in status.paths:
                record = {"status": word, "path": str(path), "image": str(status.file.path)}
                typer.echo(json.dumps(record) if as_json else f"{word:<7}  {path}")
