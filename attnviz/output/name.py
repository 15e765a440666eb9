"""``--name``: the stem of output files, with placeholders for what differs between them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attnviz.domain import DEFAULT_MODEL
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnviz.domain.requests import ModelRequest

STEM, LAYER, MODEL, COMMAND = "stem", "layer", "model", "command"
PLACEHOLDERS = (STEM, LAYER, MODEL, COMMAND)

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_NOT_IN_NAMES = re.compile(r"[/\\\0]+")


def check_placeholders(name: str) -> None:
    """Raise UsageError for a placeholder that does not exist."""
    for match in _BRACES.finditer(name):
        if match[1] is not None and match[1] not in PLACEHOLDERS:
            known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
            raise UsageError(
                f"--name: {match[0]} is not a placeholder", f"there are {known}; {{{{ is a brace"
            )


def has_placeholder(name: str, placeholder: str) -> bool:
    """Whether a name holds ``{placeholder}``."""
    return any(match[1] == placeholder for match in _BRACES.finditer(name))


def filled(name: str, values: Mapping[str, str]) -> str:
    """The name with every placeholder replaced, and doubled braces made single.

    Raises:
        UsageError: A placeholder that does not exist, or has no value for this command.
    """
    check_placeholders(name)

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        if match[1] not in values:
            raise UsageError(
                f"--name: {{{match[1]}}} has no value here, there is no option --{match[1]}",
                f"use {{{STEM}}}, {{{MODEL}}} or {{{COMMAND}}}",
            )
        return values[match[1]]

    return _BRACES.sub(value, name)


def literal(name: str) -> str:
    """A name as it is written so that nothing in it is a placeholder."""
    return name.replace("{", "{{").replace("}", "}}")


def name_values(
    command: str, models: Sequence[ModelRequest], layer: int | str | None = None
) -> dict[str, str]:
    """The values of the placeholders that are the same for all images of a run.

    ``layer``: as it was written, None for a command without one. Models are called by their name,
    else by the file or folder of their weights.
    """
    names = dict.fromkeys(_model_name(model) for model in models)
    values = {COMMAND: command, MODEL: _NOT_IN_NAMES.sub("-", "+".join(names))}
    return values if layer is None else {**values, LAYER: str(layer)}


def _model_name(model: ModelRequest) -> str:
    if model.name is not None:
        return model.name
    return DEFAULT_MODEL if model.checkpoint is None else model.checkpoint.stem
