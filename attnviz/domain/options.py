"""A request as its options were written, by their command-line names, ready for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnviz.domain.requests import (
    FeaturesRequest,
    HeadsRequest,
    LayersRequest,
    MatrixRequest,
    PatchRequest,
    QkvRequest,
    RelevanceRequest,
    RolloutRequest,
    ScoreRequest,
)

if TYPE_CHECKING:
    from attnviz.domain import DrawStyle
    from attnviz.domain.requests import (
        CommandRequest,
        CompareRequest,
        InputRequest,
        ModelRequest,
        RunRequest,
        ValueRange,
    )


def command_name(command: CommandRequest) -> str:
    """The command's name on the command line: ``heads``, ``layers``, ..."""
    return type(command).__name__.removesuffix("Request").lower()


def written_options(request: RunRequest) -> dict[str, Any]:
    """Every option that shapes the numbers or the drawing, by its command-line name.

    JSON-ready; options that keep their default are left out where None or False is that default.
    """
    options: dict[str, Any] = _command_options(request.command)
    options |= written_inputs(request.model, request.inputs)
    options |= _style_options(request.style)
    return set_options(options)


def set_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options without those that keep a default of None, False or no value."""
    return {name: value for name, value in options.items() if not _left_out(value)}


def compared_options(request: CompareRequest) -> dict[str, Any]:
    """The same of a comparison: what belongs to a row is a list, one entry a row that has it."""
    models = [model for model in request.models if model.checkpoint is None]
    checkpoints = [model for model in request.models if model.checkpoint is not None]
    shared = written_inputs(request.models[0], request.inputs)
    last = checkpoints[0] if checkpoints else request.models[0]
    own = written_inputs(last, request.inputs)
    options: dict[str, Any] = {
        "show": [str(shown) for shown in request.shown],
        "layer": request.layer,
        **shared,
        "model": [model.name for model in models if model.name is not None],
        "checkpoint": [_named_path(model) for model in checkpoints],
        "checkpoint-key": own["checkpoint-key"],
        "model-arg": own["model-arg"],
        "random-weights": any(model.random_weights for model in request.models),
        **_style_options(request.style),
    }
    return set_options(options)


def _named_path(model: ModelRequest) -> str:
    return f"{model.name}={model.checkpoint}" if model.name else str(model.checkpoint)


def written_inputs(model: ModelRequest, inputs: InputRequest) -> dict[str, Any]:
    """The options that choose a model and say how pictures get to it; unset ones are None."""
    return {
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
        "bands": _joined(inputs.bands),
        "range": _range(inputs.value_range),
    }


def _style_options(style: DrawStyle) -> dict[str, Any]:
    return {
        "width": style.width,
        "dpi": style.dpi,
        "cmap": style.cmap,
        "scale": style.scale.value,
        "limits": _joined(style.fixed_limits),
        "interpolation": style.interpolation.value,
        "alpha": style.alpha,
    }


def _left_out(value: Any) -> bool:
    # By identity: layer 0 and a ratio of 0 are equal to False, and no defaults.
    return value is None or value is False or value == []


def _command_options(  # noqa: C901 - one case a command
    command: CommandRequest,
) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if not isinstance(command, FeaturesRequest):
        options["heads"] = _joined(command.heads)
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
                "at": _cells(command.cells),
                "xy": _points(command.points),
                "each-head": command.each_head,
            }
        case ScoreRequest():
            options |= {
                "layer": command.layer,
                "keep-ratio": command.keep_ratio,
                "csv": command.csv,
            }
        case RelevanceRequest():
            options |= {
                "method": command.method.value,
                "class": command.class_index,
                "like": None if command.like is None else str(command.like),
            }
        case FeaturesRequest():
            options |= {
                "layer": command.layer,
                "at": _cells(command.cells),
                "xy": _points(command.points),
                "foreground": command.foreground,
                "flip-foreground": command.flip_foreground,
                "outlier-threshold": command.outlier_threshold,
            }
        case MatrixRequest():
            options |= {"layer": command.layer, "norm": command.norm.value}
        case QkvRequest():
            options |= {"layer": command.layer, "part": [part.value for part in command.parts]}
    return options


def _cells(cells: tuple[tuple[int, int], ...]) -> list[str]:
    return [f"{row},{column}" for row, column in cells]


def _points(points: tuple[tuple[float, float], ...]) -> list[str]:
    return [f"{x!r},{y!r}" for x, y in points]


def _range(values: ValueRange | None) -> str | None:
    return "auto" if values == "auto" else _joined(values)


def _joined(values: tuple[float, ...] | None) -> str | None:
    return None if values is None else ",".join(repr(value) for value in values)
