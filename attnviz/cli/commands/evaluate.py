"""``attnviz eval``."""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnviz.cli.input_options import ConfigOption, InputOptions, QuietOption
from attnviz.cli.options import LayerOption, QueryOption
from attnviz.cli.parse import in_range, parse_index
from attnviz.cli.report import Report, print_table
from attnviz.cli.run import input_request, model_request
from attnviz.domain import DEFAULT_MASS, Query

if TYPE_CHECKING:
    from attnviz.domain.events import Done, Started
    from attnviz.runs.jaccard import PictureScores, Summary


class TableFormat(StrEnum):
    """How the scores are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


@dataclass(frozen=True, kw_only=True)
class EvalOptions(InputOptions):
    """Options of ``eval``."""

    images: Annotated[
        str,
        typer.Argument(
            metavar="IMAGES", help="Pictures: a file, folder or glob.", show_default=False
        ),
    ]
    masks: Annotated[
        str,
        typer.Argument(
            metavar="MASKS",
            help="PNG masks of the same stems, sub-folder by sub-folder.",
            show_default=False,
        ),
    ]
    layer: LayerOption = "-1"
    threshold: Annotated[
        float,
        typer.Option(metavar="0..1", help="Share of the attention that a mask holds."),
    ] = DEFAULT_MASS
    query: QueryOption = Query.CLS
    format: Annotated[TableFormat, typer.Option(help="How the scores are printed.")] = (
        TableFormat.TABLE
    )
    quiet: QuietOption = False
    config: ConfigOption = None


def evaluate(options: EvalOptions) -> int:
    """How well attention draws objects: Jaccard indices of mass masks (the DINO paper's figure 4).

    For every picture with a mask: the attention of each head, their mean, and the rollout, each cut
    to the fewest cells that hold the threshold, enlarged to pixels and compared with the mask.
    Averages over pictures go to standard output. In a mask an object is what is not 0; with an
    alpha channel, what is not transparent; with a palette, an index other than 0 and 255.

    Example: attnviz eval photos/ masks/ --model dino_vits8 --format csv
    """
    from attnviz.runs.evaluate import EvaluationRequest
    from attnviz.runs.evaluate import evaluate as events
    from attnviz.runs.jaccard import summarise

    request = EvaluationRequest(
        model=model_request(options),
        inputs=input_request([options.images], options),
        masks=options.masks,
        layer=parse_index("--layer", options.layer),
        threshold=in_range("--threshold", options.threshold, above=0, most=1),
        query=options.query,
    )
    report = _EvalReport(quiet=options.quiet)
    code = report.consume(events(request))
    if report.scores:
        facts = {"model": report.model, "layer": request.layer, "query": request.query.value}
        _print(summarise(report.scores), facts | {"threshold": request.threshold}, options.format)
    return code


class _EvalReport(Report):
    """Reads the events of an evaluation and keeps the scores."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self.scores: list[PictureScores] = []
        self.model = ""

    def _start(self, event: Started) -> None:
        super()._start(event)
        self.model = event.model.name

    def _finish_one(self, event: Done) -> None:
        self._done += 1
        self._say_notes(event)
        self.scores.append(event.scores)  # type: ignore[attr-defined]  # a Scored


def _print(summary: Summary, facts: dict[str, Any], form: TableFormat) -> None:
    if form is TableFormat.JSON:
        typer.echo(json.dumps({**facts, **dataclasses.asdict(summary)}))
        return
    rows = [(f"head {head}", value) for head, value in enumerate(summary.heads)]
    rows += [
        (f"best fixed head ({summary.best_head})", summary.best_fixed_head),
        ("best head per image", summary.best_head_per_image),
        ("mean map", summary.mean_map),
        ("rollout", summary.rollout),
    ]
    peak = "highest cell on the object"
    if form is TableFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([("map", "value"), *rows, (peak, summary.peak_on_object)])
        return
    print_table([{"map": name, "Jaccard": value} for name, value in rows], sys.stdout)
    typer.echo(f"{peak}: {100 * summary.peak_on_object:.1f} % of {summary.pictures} pictures")
