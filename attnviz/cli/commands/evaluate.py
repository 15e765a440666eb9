"""``attnviz eval``."""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from attnviz.cli.panels import IMAGES, MODEL, QUIET, Given, Panel, PrintRequest
from attnviz.cli.report import Report, print_table
from attnviz.cli.run import check_weights, model_request
from attnviz.domain.evaluation import EvaluationRequest
from attnviz.domain.forms import choice
from attnviz.domain.options import option
from attnviz.domain.requests import InputRequest

if TYPE_CHECKING:
    from attnviz.domain.events import Done, Started
    from attnviz.runs.corloc import Overlaps
    from attnviz.runs.evaluate import Scored
    from attnviz.runs.jaccard import ImageScores, Summary


class TableFormat(StrEnum):
    """How the scores are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


@dataclass(frozen=True)
class ScoreOptions:
    """How the scores are printed."""

    format: TableFormat = option(
        TableFormat.TABLE, choice(TableFormat), "How the scores are printed."
    )


IMAGES_ARGUMENT = Annotated[
    str,
    typer.Argument(metavar="IMAGES", help="Images: a file, folder or glob.", show_default=False),
]
MASKS = Annotated[
    str | None,
    typer.Argument(
        metavar="[MASKS]",
        help="PNG masks of the same stems, sub-folder by sub-folder; not needed with --boxes.",
        show_default=False,
    ),
]


def evaluate(given: Given, images: IMAGES_ARGUMENT, masks: MASKS = None) -> int:
    """How well attention draws objects: Jaccard indices of mass masks (the DINO paper's figure 4).

    For every image with a mask: the attention of each head, their mean, and the rollout, each cut
    to the fewest cells that hold the threshold, enlarged to pixels and compared with the mask.
    Averages over images go to standard output. In a mask an object is what is not 0; with an
    alpha channel, what is not transparent; with a palette, an index other than 0 and 255. With
    --boxes also CorLoc: the share of images whose discovered box overlaps one of the object's by
    an intersection over union above 0.5.

    Example: attnviz eval photos/ masks/ --model dino_vits8 --format csv
    """
    request: EvaluationRequest = given.make(
        EvaluationRequest,
        model=model_request(given),
        inputs=given.make(InputRequest, inputs=(images,)),
        masks=masks,
    )
    check_weights(request.model)
    from attnviz.runs.evaluate import evaluate as events

    printing: PrintRequest = given.make(PrintRequest)
    report = _EvalReport(quiet=printing.quiet)
    code = report.consume(events(request))
    if report.scores or report.overlaps:
        facts = {"model": report.model, "layer": request.layer, "query": str(request.query)}
        options: ScoreOptions = given.make(ScoreOptions)
        _print(report, facts | {"threshold": request.threshold}, options.format)
    return code


PANELS = (
    Panel(None, EvaluationRequest),
    Panel(None, ScoreOptions),
    MODEL,
    IMAGES,
    QUIET,
)


class _EvalReport(Report):
    """Reads the events of an evaluation and keeps the scores."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self.scores: list[ImageScores] = []
        self.overlaps: list[Overlaps] = []
        self.model = ""

    def _start(self, event: Started) -> None:
        super()._start(event)
        self.model = event.model.name

    def _finish_one(self, event: Done) -> None:
        super()._finish_one(event)
        scored = cast("Scored", event)
        self.scores += [scored.scores] if scored.scores is not None else []
        self.overlaps += [scored.overlaps] if scored.overlaps else []


def _print(report: _EvalReport, facts: dict[str, Any], form: TableFormat) -> None:
    from attnviz.runs.corloc import corloc
    from attnviz.runs.jaccard import summarise

    summary = summarise(report.scores) if report.scores else None
    located = corloc(report.overlaps) if report.overlaps else {}
    if form is TableFormat.JSON:
        record = {} if summary is None else dataclasses.asdict(summary)
        if located:
            record |= {"corloc": located, "pictures_with_boxes": len(report.overlaps)}
        typer.echo(json.dumps({**facts, **record}))
        return
    rows = [] if summary is None else _jaccard_rows(summary)
    peak = "highest cell on the object"
    if form is TableFormat.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([("map", "value"), *rows])
        writer.writerows([] if summary is None else [(peak, summary.peak_on_object)])
        writer.writerows((f"CorLoc {method}", value) for method, value in located.items())
        return
    if summary is not None:
        print_table([{"map": name, "Jaccard": value} for name, value in rows], sys.stdout)
        typer.echo(f"{peak}: {100 * summary.peak_on_object:.1f} % of {summary.pictures} images")
    for method, value in located.items():
        of = f"{len(report.overlaps)} images"
        typer.echo(f"CorLoc (IoU > 0.5), {method}: {100 * value:.1f} % of {of}")


def _jaccard_rows(summary: Summary) -> list[tuple[str, float]]:
    rows = [(f"head {head}", value) for head, value in enumerate(summary.heads)]
    return [
        *rows,
        (f"best fixed head ({summary.best_head})", summary.best_fixed_head),
        ("best head per image", summary.best_head_per_image),
        ("mean map", summary.mean_map),
        ("rollout", summary.rollout),
    ]
