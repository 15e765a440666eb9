"""A request as its options were written, by their command-line names, ready for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnviz.requests import (
    HeadsRequest,
    LayersRequest,
    PatchRequest,
    RelevanceRequest,
    RolloutRequest,
    ScoreRequest,
)

if TYPE_CHECKING:
    from attnviz.requests import CommandRequest, RunRequest


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
    # By identity: 0 equals False, and says something.
    return {
        name: value
        for name, value in options.items()
        if value is not None and value is not False and value != []
    }


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
        case RelevanceRequest():
            options |= {
                "method": command.method.value,
                "class": command.class_index,
                "like": None if command.like is None else str(command.like),
            }
    return options


def _joined(values: tuple[float, ...] | None) -> str | None:
    return None if values is None else ",".join(repr(value) for value in values)
