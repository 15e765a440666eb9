"""``attnviz compare``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from attnviz.cli.complete import model_names
from attnviz.cli.input_options import MODEL_PANEL, InputOptions
from attnviz.cli.map_names import parse_shown
from attnviz.cli.options import DRAWING_PANEL, FigureOptions
from attnviz.cli.parse import parse_index
from attnviz.cli.report import Report
from attnviz.cli.run import (
    draw_style,
    input_request,
    model_request,
    output_request,
)
from attnviz.domain import DEFAULT_MODEL, Scale
from attnviz.domain.requests import CompareRequest, ModelRequest
from attnviz.errors import UsageError
from attnviz.storage import path_of


@dataclass(frozen=True, kw_only=True)
class CompareOptions(FigureOptions):
    """Options of ``compare``."""

    show: Annotated[
        list[str],
        typer.Option(
            metavar="MAP",
            help="A column, or several after commas: mean, head:3, heads, rollout, score, pca, "
            "foreground, norm, patch@ROW,COLUMN, cosine@X,Ypx, entropy, to-cls, and of q, k, v "
            "such as k-pca, k-norm; repeatable.",
            show_default="mean",
        ),
    ] = field(default_factory=list)
    layer: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Layer (block), from 0; -1 is the last.",
            show_default="the last; for tokens the model's output",
        ),
    ] = None
    # Rows are made of several models, where every other command takes one.
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            "--models",
            metavar="NAME",
            help="A model to compare, or several after commas; repeatable.",
            show_default=f"{DEFAULT_MODEL}, or none with a checkpoint",
            autocompletion=model_names,
            rich_help_panel=MODEL_PANEL,
        ),
    ] = field(default_factory=list)  # type: ignore[assignment]
    checkpoint: Annotated[
        list[str],
        typer.Option(
            metavar="[NAME=]PATH",
            help="Weights to compare, with the model's name where the file does not say it; "
            "repeatable.",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = field(default_factory=list)  # type: ignore[assignment]
    scale: Annotated[
        Scale,
        typer.Option(
            help="Colour limits: one for a kind of map, of each map, or --limits.",
            rich_help_panel=DRAWING_PANEL,
        ),
    ] = Scale.SHARED


def compare(options: CompareOptions) -> int:
    """Models, checkpoints or pictures side by side, on one scale, in one figure.

    A row for every picture and model, a column for every map. --model and --checkpoint (a path, or
    NAME=PATH) may be repeated; --scale is shared, a scale for each kind of map. --model-arg and
    --checkpoint-key are of the checkpoints where there are any; --random-weights is of the models
    that are named.

    Example: attnviz compare photo.jpg --model demo --checkpoint mine.pth --show mean,rollout,pca
    """
    request = compare_request(options)
    from attnviz.runs.collect import gather
    from attnviz.runs.compare import compare as events

    report = Report(as_json=options.json, quiet=options.quiet)
    return report.consume(gather(request, events(request)))


def compare_request(options: CompareOptions) -> CompareRequest:
    """What the options of ``compare`` ask for."""
    shown = parse_shown(options.show or ["mean"])
    return CompareRequest(
        models=_models(options),
        inputs=input_request(options.inputs, options),
        output=output_request(options),
        shown=shown,
        layer=None if options.layer is None else parse_index("--layer", options.layer),
        style=draw_style(options),
    )


def _models(options: CompareOptions) -> tuple[ModelRequest, ...]:
    """One request a row: the models that are named, then the checkpoints, in the order given."""
    names = [name.strip() for text in options.model for name in text.split(",")]
    if not all(names):
        raise UsageError("--model: a name between commas is empty", "e.g. --model dino_vits8,demo")
    checkpoints: list[str] = list(options.checkpoint)
    own: dict[str, Any] = {"model_arg": [], "checkpoint_key": None} if checkpoints else {}
    rows = [_row(options, {**own, "model": name, "checkpoint": None}) for name in names]
    for written in checkpoints:
        name, path = _named(written)
        rows.append(
            _row(options, {"model": name, "checkpoint": path_of(path), "random_weights": False})
        )
    rows = rows or [_row(options, {"model": None, "checkpoint": None})]
    for place, row in enumerate(rows):
        if row in rows[:place]:
            raise UsageError(f"{row.name or row.checkpoint} would be compared with itself")
    return tuple(rows)


def _row(options: CompareOptions, own: dict[str, Any]) -> ModelRequest:
    shared = {item.name: getattr(options, item.name) for item in dataclasses.fields(InputOptions)}
    return model_request(InputOptions(**(shared | own)))


def _named(written: str) -> tuple[str | None, str]:
    """``NAME=PATH``, or a path alone; a path that exists as it is written is one."""
    name, found, path = written.partition("=")
    if not found or path_of(written).exists():
        return None, written
    return name, path
