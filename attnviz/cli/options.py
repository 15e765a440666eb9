"""Every option that more than one command has, once: its name, type, default and help.

A command takes one options value: a frozen dataclass that inherits ``FigureOptions`` and adds its
own fields (``flatten.py`` makes the flat signature that typer wants). Field names are the option
names with ``_`` for ``-``; configuration files use them too. Structured values stay text here and
are read by ``values.py``, so that the command line and a configuration file fail alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.complete import cmap_names
from attnviz.cli.input_options import RUN_PANEL, ConfigOption, InputOptions, QuietOption
from attnviz.domain import (
    DEFAULT_ALPHA,
    DEFAULT_CMAP,
    DEFAULT_DPI,
    DEFAULT_OUT,
    Engine,
    ImageFormat,
    Interpolation,
    Query,
    Scale,
)
from attnviz.storage import path_of

DRAWING_PANEL = "Drawing"
OUTPUT_PANEL = "Output"

LayerOption = Annotated[
    str,
    typer.Option(metavar="N", help="Layer (block), from 0; -1 is the last, -2 the one before."),
]
QueryOption = Annotated[
    Query,
    typer.Option(
        help="Whose attention: the class token's, or the mean over all patches (also for models "
        "without a class token)."
    ),
]
HeadsOption = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Heads to take, e.g. 0,2 or 0-3; -1 is the last.",
        show_default="all",
    ),
]
DistanceOption = Annotated[
    bool,
    typer.Option(
        "--distance/--no-distance",
        help="Also the mean attention distance of each head, in input pixels.",
    ),
]
SummaryOption = Annotated[
    bool,
    typer.Option(
        "--summary",
        help="Also one figure of all pictures: how entropy and distance of each head spread.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


@dataclass(frozen=True, kw_only=True)
class FigureOptions(InputOptions):
    """What every command takes that draws figures of pictures."""

    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Pictures: files, folders, globs, addresses (s3://...), or - for a list on "
            "standard input.",
            show_default=False,
        ),
    ]

    width: Annotated[
        str,
        typer.Option(
            metavar="column|page|INCHES",
            help="Width of the figure on paper: 3.35 in, 7 in, or your own.",
            rich_help_panel=DRAWING_PANEL,
        ),
    ] = "page"
    dpi: Annotated[
        int,
        typer.Option(
            min=30,
            max=2400,
            metavar="N",
            help="Pixels per inch of PNG files and of pictures inside PDF files.",
            rich_help_panel=DRAWING_PANEL,
        ),
    ] = DEFAULT_DPI
    cmap: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Colour map of matplotlib.",
            autocompletion=cmap_names,
            rich_help_panel=DRAWING_PANEL,
        ),
    ] = DEFAULT_CMAP
    scale: Annotated[
        Scale,
        typer.Option(
            help="Colour limits: of each panel, one for all panels, or --limits.",
            rich_help_panel=DRAWING_PANEL,
        ),
    ] = Scale.PANEL
    limits: Annotated[
        str | None,
        typer.Option(
            metavar="MIN,MAX",
            help="The limits of --scale fixed.",
            rich_help_panel=DRAWING_PANEL,
        ),
    ] = None
    interpolation: Annotated[
        Interpolation,
        typer.Option(
            help="How cells are enlarged; nearest shows what was measured.",
            rich_help_panel=DRAWING_PANEL,
        ),
    ] = Interpolation.NEAREST
    alpha: Annotated[
        float,
        typer.Option(
            metavar="0..1",
            help="Strength of the colours laid over a picture.",
            rich_help_panel=DRAWING_PANEL,
        ),
    ] = DEFAULT_ALPHA

    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            parser=path_of,
            metavar="FOLDER",
            help="Where results go, also an address (s3://...); sub-folders of an input folder are "
            "kept.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = Path(DEFAULT_OUT)
    name: Annotated[
        str | None,
        typer.Option(
            metavar="STEM",
            help="Name the figures STEM.COMMAND.FORMAT; {stem} (the picture's name), {layer}, "
            "{model} and {command} are filled in.",
            show_default="the picture's name",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None
    format: Annotated[
        list[ImageFormat],
        typer.Option(
            "--format",
            "-f",
            help="File format of the figures; repeatable.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = field(default_factory=lambda: [ImageFormat.PNG])
    save_data: Annotated[
        bool,
        typer.Option(
            "--save-data",
            help="Also write the raw arrays (.npz).",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=path_of,
            help="Also the numbers of all pictures in one file, .csv or .parquet.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None
    skip_existing: Annotated[
        bool,
        typer.Option(
            "--skip-existing/--overwrite",
            help="Leave figures alone that were made from the same picture, weights and options.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="One JSON record a line on standard output, instead of the paths.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False

    quiet: QuietOption = False
    config: ConfigOption = None


@dataclass(frozen=True, kw_only=True)
class RunOptions(FigureOptions):
    """What every command takes that draws one figure a picture: how many at a time, and where."""

    batch_size: Annotated[
        str,
        typer.Option(
            metavar="auto|N",
            help="Pictures of one size that go through the model together.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = "auto"
    workers: Annotated[
        str,
        typer.Option(
            metavar="auto|N",
            help="Processes that draw; 0 draws in this one.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = "auto"
    engine: Annotated[
        Engine,
        typer.Option(
            help="What joins the stages: this machine, or a Ray cluster (the extra ray).",
            rich_help_panel=RUN_PANEL,
        ),
    ] = Engine.LOCAL
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The Ray cluster to use.",
            show_default="one of this machine, for this run",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None
    cpus_per_model: Annotated[
        str,
        typer.Option(
            metavar="auto|N",
            help="CPU cores of each model on a Ray cluster without GPUs.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = "auto"
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Only part I of N of the pictures, from 0: the same part on every machine.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None
    fail_fast: Annotated[
        bool,
        typer.Option(
            "--fail-fast",
            help="Stop at the first picture that fails.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class SharedOptions(RunOptions):
    """What every command takes that draws the attention of heads."""

    heads: HeadsOption = None
