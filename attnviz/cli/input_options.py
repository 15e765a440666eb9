"""The options that choose a model and say how pictures get to it, and two that every run has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.complete import model_names
from attnviz.cli.config import read_config
from attnviz.domain import DEFAULT_MAX_PIXELS, DEFAULT_MODEL, Fit, Positions, Precision
from attnviz.storage import path_of

MODEL_PANEL = "Model"
PICTURE_PANEL = "Pictures"
RUN_PANEL = "Run"

QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="No progress and no tables; failures are still reported.",
        rich_help_panel=RUN_PANEL,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=path_of,
        help="A TOML file with values for these options; the command line wins.",
        callback=read_config,
        is_eager=True,
        rich_help_panel=RUN_PANEL,
    ),
]


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """What every command takes that runs a model on pictures."""

    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A name from 'attnviz models', or any plain ViT of timm.",
            show_default=f"{DEFAULT_MODEL}, or what the checkpoint is",
            autocompletion=model_names,
            rich_help_panel=MODEL_PANEL,
        ),
    ] = None
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            parser=path_of,
            help="Weights of your own: a .pth or .safetensors file, or a Hugging Face folder.",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = None
    checkpoint_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Which entry of a training checkpoint to take.",
            show_default="teacher, where there is one",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = None
    model_arg: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=N",
            help="A size of your own model (depth, width, heads, patch, registers); repeatable.",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = field(default_factory=list)
    random_weights: Annotated[
        bool,
        typer.Option(
            "--random-weights",
            help="Draw an untrained model; its figures say so.",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = False
    device: Annotated[
        str,
        typer.Option(
            metavar="auto|cpu|cuda[:N]|mps",
            help="Where the model runs.",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = "auto"
    precision: Annotated[
        Precision,
        typer.Option(
            help="Number type of the model; softmax and sums are float32 in any case.",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = Precision.FLOAT32
    positions: Annotated[
        Positions | None,
        typer.Option(
            help="Whose rule resizes the position embedding to another grid.",
            show_default="the rule of the model's own code",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = None
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Also check, for every picture, that attention times V is the model's own output.",
            rich_help_panel=MODEL_PANEL,
        ),
    ] = False

    size: Annotated[
        str | None,
        typer.Option(
            metavar="S|HxW|original",
            help="Size of the model input: shorter side, height x width, or the picture's own.",
            show_default="the model's native size",
            rich_help_panel=PICTURE_PANEL,
        ),
    ] = None
    fit: Annotated[
        Fit,
        typer.Option(
            help="How a picture gets that size: aspect kept, squashed, cropped or padded.",
            rich_help_panel=PICTURE_PANEL,
        ),
    ] = Fit.ASPECT
    mean: Annotated[
        str | None,
        typer.Option(
            metavar="R,G,B",
            help="Mean of the pixel normalisation, for pixels from 0 to 1.",
            show_default="the model's own",
            rich_help_panel=PICTURE_PANEL,
        ),
    ] = None
    std: Annotated[
        str | None,
        typer.Option(
            metavar="R,G,B",
            help="Standard deviation of the pixel normalisation.",
            show_default="the model's own",
            rich_help_panel=PICTURE_PANEL,
        ),
    ] = None
    max_pixels: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Pictures of more pixels are refused.",
            rich_help_panel=PICTURE_PANEL,
        ),
    ] = DEFAULT_MAX_PIXELS
