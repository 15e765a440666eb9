"""Options from a TOML file: for one command with ``--config FILE``, or for a figure of a set.

Keys are option names, with ``-`` or ``_``. A list gives a repeatable option several values, and any
other option its comma-separated text (``heads = [0, 2]``). Values are handed to the same parser as
those of the command line, so both are refused alike; an error then begins with file and line.

For ``--config``, what stands on the command line wins, and paths are relative to where the command
runs, as on the command line.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from attnviz.cli.toml_file import load_toml
from attnviz.domain.config_source import ConfigSource, field_name
from attnviz.domain.near_names import did_you_mean
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOT_IN_FILES = frozenset({"config", "help", "inputs", "image", "images", "masks"})


class CommandWithFile(TyperCommand):
    """A command whose options may come from a file: its errors say from which line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        with _located(ctx):
            return list(super().parse_args(ctx, args))

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _located(ctx):
            return super().invoke(ctx)


def typer_message(error: typer.TyperException) -> str:
    """What is wrong, without the words of the library that found it."""
    return error.format_message().replace("Value error, ", "")


@contextmanager
def _located(context: Any) -> Iterator[None]:
    """Errors about an option whose value is from a file, told with file and line."""
    try:
        yield
    except (UsageError, typer.TyperException) as error:
        source = context.obj
        if not isinstance(source, ConfigSource):
            raise
        if isinstance(error, UsageError):
            message, hint = error.message, error.hint
        else:
            message, hint = typer_message(error), ""
        told = _used(source, context).locate(message, hint)
        if told is None:
            raise
        raise told from error


def _used(source: ConfigSource, context: Any) -> ConfigSource:
    """Without the options that the command line gave another value."""
    overridden = {
        name
        for name in source.lines
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }
    lines = {name: line for name, line in source.lines.items() if name not in overridden}
    return ConfigSource(source.file, lines, source.line)


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Typer callback: make the file's values the defaults of the command that is being parsed.

    Raises:
        UsageError: No such file, no TOML, or a key that is not an option of this command.
    """
    if path is None or context.resilient_parsing:
        return path
    file = load_toml(path)
    options = options_of(context.command)
    context.default_map = {}
    for key, value in file.content.items():
        where = file.where(key=key)
        if field_name(key) not in options:
            raise unknown_option(where, str(context.info_name), key, options)
        context.default_map |= as_default(where, key, value, options)
    context.obj = ConfigSource(path, {field_name(key): n for key, n in file.keys_of().items()})
    return path


def options_of(command: Any) -> dict[str, Any]:
    """The options of a command that a file may give, by field name."""
    return {
        parameter.name: parameter
        for parameter in command.params
        if parameter.name is not None and parameter.name not in _NOT_IN_FILES
    }


def unknown_option(where: str, owner: str, key: str, options: Any) -> UsageError:
    """The error for a key that is not an option, with near matches."""
    spelled = [known.rstrip("_").replace("_", "-") for known in options]
    hint = did_you_mean(key.replace("_", "-"), spelled)
    return UsageError(f"{where}: unknown option {key!r}{owner and f' of {owner}'}", hint)


def as_default(where: str, key: str, value: Any, options: dict[str, Any]) -> dict[str, Any]:
    """A key's value as the parser takes it: {field name: what the command line would have said}.

    Raises:
        UsageError: A value of a kind that no option has.
    """
    parameter = options[field_name(key)]
    written = _as_written(
        f"{where}: {key}",
        value,
        flag=bool(getattr(parameter, "is_flag", False)),
        repeatable=bool(getattr(parameter, "multiple", False)),
    )
    return {field_name(key): written}


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
