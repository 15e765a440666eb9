"""What a run is asked to do: plain values that the command line, configs and Python users share.

A request holds what the user wrote; nothing in it has been looked up or read. Layers and heads
count from 0 and negative numbers count from the end; they are resolved once the model is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from attnviz.domain import (
    DEFAULT_KEEP_RATIO,
    DEFAULT_MAX_PIXELS,
    DrawStyle,
    Fit,
    ImageFormat,
    Positions,
    Precision,
    Query,
    RolloutOptions,
    Size,
    take_choices,
)

if TYPE_CHECKING:
    from pathlib import Path

SizeRequest = int | Size | Literal["original"] | None
"""Shorter side in pixels, exact height and width, the picture's own size, or the model's native."""


@dataclass(frozen=True)
class ModelRequest:
    """Which model to load, from where, onto what.

    ``name`` None: whatever the checkpoint says it is, or the default model without one.
    ``positions`` None: the rule of the code that the weights come with.
    ``args``: sizes of one's own (width, depth, heads, patch, ...) for a checkpoint.
    """

    name: str | None = None
    checkpoint: Path | None = None
    checkpoint_key: str | None = None
    random_weights: bool = False
    device: str = "auto"
    precision: Precision = Precision.FLOAT32
    positions: Positions | None = None
    args: dict[str, int] = field(default_factory=dict)
    verify: bool = False


@dataclass(frozen=True)
class InputRequest:
    """Which pictures, and how they become model inputs.

    ``inputs``: files, folders, globs, or "-" for a list on standard input.
    """

    inputs: tuple[str, ...]
    size: SizeRequest = None
    fit: Fit = Fit.ASPECT
    max_pixels: int = DEFAULT_MAX_PIXELS
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True)
class OutputRequest:
    """Where results go and in which forms.

    ``name``: the stem of a single picture's files, instead of the picture's own.
    """

    folder: Path
    formats: tuple[ImageFormat, ...] = (ImageFormat.PNG,)
    save_data: bool = False
    skip_existing: bool = False
    name: str | None = None


@dataclass(frozen=True)
class HeadsRequest:
    """The CLS attention of every head of a layer."""

    layer: int = -1
    heads: tuple[int, ...] | None = None
    threshold: float | None = None
    overlay: bool = False
    distance: bool = True
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True)
class LayersRequest:
    """The CLS attention of every layer."""

    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    each_head: bool = False
    distance: bool = True
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True)
class RolloutRequest:
    """Attention rollout. ``depths``: also show the rollout after these layers."""

    options: RolloutOptions = field(default_factory=RolloutOptions)
    heads: tuple[int, ...] | None = None
    depths: tuple[int, ...] = ()
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True)
class PatchRequest:
    """The attention of chosen patches: ``cells`` (row, column), ``points`` (x, y) in pixels.

    Without either: the centre patch of each quadrant.
    """

    layer: int = -1
    heads: tuple[int, ...] | None = None
    cells: tuple[tuple[int, int], ...] = ()
    points: tuple[tuple[float, float], ...] = ()
    each_head: bool = False


@dataclass(frozen=True)
class ScoreRequest:
    """The VTC-LFC token score of a layer."""

    layer: int = -1
    heads: tuple[int, ...] | None = None
    keep_ratio: float = DEFAULT_KEEP_RATIO
    csv: bool = False


CommandRequest = HeadsRequest | LayersRequest | RolloutRequest | PatchRequest | ScoreRequest


@dataclass(frozen=True)
class RunRequest:
    """One run of one command over any number of pictures.

    ``batch_size`` 0 means automatic. ``workers`` None means automatic, 0 draws in this process.
    """

    command: CommandRequest
    model: ModelRequest
    inputs: InputRequest
    output: OutputRequest
    style: DrawStyle = field(default_factory=DrawStyle)
    batch_size: int = 0
    workers: int | None = None
    fail_fast: bool = False


def command_name(command: CommandRequest) -> str:
    """The command's name on the command line: ``heads``, ``layers``, ..."""
    return type(command).__name__.removesuffix("Request").lower()


def written_options(request: RunRequest) -> dict[str, Any]:
    """Every option that shapes the numbers or the drawing, by its command-line name.

    JSON-ready; options that keep their default are left out where None or False is that default.
    """
    model, inputs, style = request.model, request.inputs, request.style
    options: dict[str, Any] = _command_options(request.command)
    options |= {
        "model": model.name,
        "checkpoint": None if model.checkpoint is None else str(model.checkpoint),
        "checkpoint-key": model.checkpoint_key,
        "model-arg": [f"{name}={value}" for name, value in model.args.items()],
        "random-weights": model.random_weights,
        "precision": model.precision.value,
        "positions": None if model.positions is None else model.positions.value,
        "size": None if inputs.size is None else str(inputs.size),
        "fit": inputs.fit.value,
        "mean": _joined(inputs.mean),
        "std": _joined(inputs.std),
        "width": style.width,
        "dpi": style.dpi,
        "cmap": style.cmap,
        "scale": style.scale.value,
        "limits": _joined(style.fixed_limits),
        "interpolation": style.interpolation.value,
        "alpha": style.alpha,
    }
    return {name: value for name, value in options.items() if value not in (None, False, [])}


def _command_options(command: CommandRequest) -> dict[str, Any]:
    options: dict[str, Any] = {"heads": _joined(command.heads)}
    match command:
        case HeadsRequest():
            options |= {
                "layer": command.layer,
                "threshold": command.threshold,
                "overlay": command.overlay,
                "no-distance": not command.distance,
                "query": command.query.value,
            }
        case LayersRequest():
            options |= {
                "layers": _joined(command.layers),
                "each-head": command.each_head,
                "no-distance": not command.distance,
                "query": command.query.value,
            }
        case RolloutRequest():
            options |= {
                "fusion": command.options.fusion.value,
                "residual": command.options.residual,
                "discard-ratio": command.options.discard_ratio,
                "discard": command.options.discard.value,
                "start-layer": command.options.start_layer,
                "layers-shown": _joined(command.depths or None),
                "query": command.query.value,
            }
        case PatchRequest():
            options |= {
                "layer": command.layer,
                "at": [f"{row},{column}" for row, column in command.cells],
                "xy": [f"{x!r},{y!r}" for x, y in command.points],
                "each-head": command.each_head,
            }
        case ScoreRequest():
            options |= {
                "layer": command.layer,
                "keep-ratio": command.keep_ratio,
                "csv": command.csv,
            }
    return options


def _joined(values: tuple[float, ...] | None) -> str | None:
    return None if values is None else ",".join(repr(value) for value in values)
