"""What typer cannot parse: an option followed by several numbers, or by choices after commas."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.domain.kinds import KINDS
from attnviz.domain.options import option_fields
from attnviz.domain.parse import INDEX_LIST

if TYPE_CHECKING:
    from collections.abc import Sequence

_LISTS = frozenset({"--layers", "--layers-shown", "--heads"})
_CHOICES = frozenset({"--part", "--format", "-f"})


def plain_arguments(arguments: Sequence[str]) -> list[str]:
    """``--layers 0 11 photo.jpg`` becomes ``--layers 0,11 photo.jpg``, and ``--part q,k`` two.

    Only numbers and ranges that directly follow are joined, and none that is the name of a file or
    folder here; what stands after ``--`` is left alone.
    """
    joined: list[str] = []
    rest = list(arguments)
    choices = _CHOICES - _single_choices(arguments)
    while rest:
        argument = rest.pop(0)
        name, given, value = argument.partition("=")
        if argument.startswith("-f") and "," in argument and not given:
            name, given, value = "-f", "=", argument[2:]
        if name in choices and (given or rest):
            value = value if given else rest.pop(0)
            joined += [part for choice in value.split(",") for part in (name, choice.strip())]
            continue
        joined.append(argument)
        if argument == "--":
            return joined + rest
        if argument not in _LISTS or not rest:
            continue
        values = [rest.pop(0)]
        while rest and INDEX_LIST.fullmatch(values[-1]) and _is_number(rest[0]):
            values.append(rest.pop(0))
        joined.append(",".join(values))
    return joined


def _single_choices(arguments: Sequence[str]) -> frozenset[str]:
    """Options of the command that is called that take one value, though others take several."""
    command = next((each for each in arguments if each in KINDS), None)
    if command is None:
        return frozenset()
    request: type = KINDS[command].request
    options = option_fields(request)
    return frozenset(f"--{each.name}" for each in options if not each.option.form.repeated)


def _is_number(argument: str) -> bool:
    return INDEX_LIST.fullmatch(argument) is not None and not Path(argument).exists()
