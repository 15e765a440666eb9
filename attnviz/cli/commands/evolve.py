"""``attnviz evolve``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.options import DRAWING_PANEL, FigureOptions, HeadsOption, LayerOption, QueryOption
from attnviz.cli.parse import in_range, optional_indices, parse_index
from attnviz.cli.report import Report
from attnviz.cli.run import (
    draw_style,
    input_request,
    model_request,
    output_request,
)
from attnviz.domain import DEFAULT_MASS, Query, Rows, Scale
from attnviz.errors import UsageError
from attnviz.storage import path_of

_UNUSED = typer.Option(help="Not of this command.", hidden=True)


@dataclass(frozen=True, kw_only=True)
class EvolveOptions(FigureOptions):
    """Options of ``evolve``."""

    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECKPOINT",
            help="Files or folders as --checkpoint takes them, in rising order of their numbers.",
            show_default=False,
        ),
    ]
    image: Annotated[str, typer.Option(metavar="IMAGE", help="The picture.", show_default=False)]
    mask: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=path_of,
            help="The object's pixels; adds the Jaccard index, as in eval.",
        ),
    ] = None
    threshold: Annotated[
        float,
        typer.Option(metavar="0..1", help="Share of the attention that a mass mask holds."),
    ] = DEFAULT_MASS
    rows: Annotated[
        Rows, typer.Option(help="What stands below each other: heads, or layers as mean heads.")
    ] = Rows.HEADS
    layer: LayerOption = "-1"
    heads: HeadsOption = None
    query: QueryOption = Query.CLS
    scale: Annotated[
        Scale,
        typer.Option(
            help="Colour limits: one for all maps, of each map, or --limits.",
            rich_help_panel=DRAWING_PANEL,
        ),
    ] = Scale.SHARED
    animation: Annotated[
        bool, typer.Option("--animation", help="Also a GIF, one frame a checkpoint.")
    ] = False
    # One picture and several sets of weights, where every other command has it the other way.
    checkpoint: Annotated[Path | None, _UNUSED] = None
    random_weights: Annotated[bool, _UNUSED] = False


def evolve(options: EvolveOptions) -> int:
    """How attention changes while a model trains: one picture under several checkpoints.

    Checkpoints across, heads of a layer (or layers) down, on one colour scale; entropy and, with a
    mask, the Jaccard index of every row as curves.

    Example: attnviz evolve step00100.pth step00200.pth --image photo.jpg --rows layers
    """
    from attnviz.runs.evolve import EvolutionRequest
    from attnviz.runs.evolve import evolve as events

    for given, name in (
        (options.checkpoint, "checkpoint"),
        (options.random_weights, "random-weights"),
    ):
        if given:
            raise UsageError(f"--{name}: the weights of evolve are its arguments")
    checkpoints = tuple(path_of(name) for name in dict.fromkeys(options.inputs))
    for path in checkpoints:
        if not path.exists():
            raise UsageError(f"checkpoint {path} does not exist", "give a file or a folder")
    if options.mask is not None and not options.mask.is_file():
        raise UsageError(f"--mask: {options.mask} is no file")
    request = EvolutionRequest(
        checkpoints=checkpoints,
        model=dataclasses.replace(model_request(options), checkpoint_key=options.checkpoint_key),
        inputs=input_request([options.image], options),
        output=output_request(options),
        style=draw_style(options),
        rows=options.rows,
        layer=parse_index("--layer", options.layer),
        heads=optional_indices("--heads", options.heads),
        query=options.query,
        mask=options.mask,
        threshold=in_range("--threshold", options.threshold, above=0, most=1),
        animation=options.animation,
    )
    return Report(as_json=options.json, quiet=options.quiet).consume(events(request))
