"""``attnviz score``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from attnviz.cli.options import LayerOption, SharedOptions
from attnviz.cli.parse import in_range, optional_indices, parse_index
from attnviz.cli.run import run
from attnviz.domain import DEFAULT_KEEP_RATIO
from attnviz.domain.requests import ScoreRequest


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(SharedOptions):
    """Options of ``score``."""

    layer: LayerOption = "-1"
    keep_ratio: Annotated[
        float,
        typer.Option(metavar="0..1", help="Share of the patches that are kept, highest first."),
    ] = DEFAULT_KEEP_RATIO
    csv: Annotated[
        bool, typer.Option("--csv", help="Also a table of the scores, one row a patch.")
    ] = False


def score(options: ScoreOptions) -> int:
    """How much each patch matters: the token score of VTC-LFC.

    The score, its two terms, the patches kept at a ratio, and the score's distribution.

    Example: attnviz score photos/ --keep-ratio 0.7 --csv
    """
    return run(score_request(options), options)


def score_request(options: ScoreOptions) -> ScoreRequest:
    """What the options of ``score`` ask for."""
    return ScoreRequest(
        layer=parse_index("--layer", options.layer),
        heads=optional_indices("--heads", options.heads),
        keep_ratio=in_range("--keep-ratio", options.keep_ratio, above=0, most=1),
        csv=options.csv,
    )
