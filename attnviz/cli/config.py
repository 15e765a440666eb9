"""``--config FILE``: values for a command's options from a TOML file.

Keys are option names, with ``-`` or ``_``. A list gives a repeatable option several values, and any
other option its comma-separated text (``heads = [0, 2]``). What stands on the command line wins.
Paths are relative to where the command runs, as on the command line.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import typer

from attnviz.cli.values import did_you_mean
from attnviz.errors import UsageError

_NOT_IN_FILES = frozenset({"config", "help", "inputs"})


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Typer callback: make the file's values the defaults of the command that is being parsed.

    Raises:
        UsageError: No such file, no TOML, or a key that is no option of this command.
    """
    if path is None or context.resilient_parsing:
        return path
    options = {
        parameter.name: parameter
        for parameter in context.command.params
        if parameter.name is not None and parameter.name not in _NOT_IN_FILES
    }
    context.default_map = {}
    for key, value in load_toml(path).items():
        name = key.replace("-", "_")
        if name not in options:
            spelled = [known.replace("_", "-") for known in options]
            hint = did_you_mean(name.replace("_", "-"), spelled)
            raise UsageError(f"{path}: {context.info_name} has no option {key!r}", hint)
        parameter = options[name]
        context.default_map[name] = _as_written(
            f"{path}: {key}",
            value,
            flag=bool(getattr(parameter, "is_flag", False)),
            repeatable=bool(getattr(parameter, "multiple", False)),
        )
    return path


def load_toml(path: Path) -> dict[str, Any]:
    """The file's top-level table.

    Raises:
        UsageError: It cannot be read, or is no TOML; the message has the line.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: is no TOML file ({error})") from error


def _as_written(where: str, value: Any, *, flag: bool, repeatable: bool) -> Any:
    """The value as it would have stood on the command line."""
    if flag:
        if not isinstance(value, bool):
            raise UsageError(f"{where} is a switch, it must be true or false")
        return value
    if repeatable:
        return [_text(where, item) for item in (value if isinstance(value, list) else [value])]
    return _text(where, value)


def _text(where: str, value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_text(where, item) for item in value)
    if isinstance(value, bool | dict) or value is None:
        raise UsageError(f"{where} is a {type(value).__name__}, it must be a text, number or list")
    return str(value)
