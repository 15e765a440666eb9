"""A figure set in TOML becomes requests, through the parser of the command line itself.

    [defaults]                      # options of any figure command, under their own names
    model = "dino_vits8"
    out = "../docs/figures"

    [[figure]]
    command = "heads"
    images = ["../photos/cat.jpg"]
    name = "cat"                    # optional: the figure is cat.heads.png
    threshold = 0.6

Paths are relative to the file. A key of ``[defaults]`` reaches the commands that have it.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnviz.cli.commands.figure import figure_parser
from attnviz.cli.config import (
    CommandWithFile,
    as_default,
    options_of,
    unknown_option,
)
from attnviz.cli.toml_file import TomlFile, load_toml
from attnviz.domain import DEFAULT_OUT
from attnviz.domain.config_source import ConfigSource, field_name
from attnviz.domain.kinds import KINDS
from attnviz.domain.near_names import did_you_mean
from attnviz.errors import UsageError
from attnviz.runs.figure_set import SetFigure
from attnviz.storage import is_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnviz.domain.requests import RunRequest

_OF_RENDER = frozenset({"json", "quiet"})
"""Options that say what a run prints: attnviz render has them for all figures together."""

_OF_FOLDERS = frozenset({"table", "summary", "engine", "ray_address", "cpus_per_model", "shard"})
"""Options about all images of a run, which a set of figures is not."""

_PATHS = ("out", "checkpoint", "like", "test_registers")


def read_figure_set(path: Path, *, overwrite: bool = False) -> list[SetFigure]:
    """Every figure of a set, read and checked as far as it can be without a model or an image.

    ``overwrite``: the default of ``skip-existing`` is false, not true.

    Raises:
        UsageError: Anything in the file that is wrong; the message has file, line and key.
    """
    file = load_toml(path)
    for key in file.content:
        if key not in ("defaults", "figure"):
            hint = did_you_mean(key, ("defaults", "figure")) or "options stand in [defaults]"
            raise UsageError(f"{file.where(key, 0, key)}: unknown key {key!r}", hint)
    defaults, figures = file.content.get("defaults", {}), file.content.get("figure", [])
    if not isinstance(defaults, dict):
        raise UsageError(f"{file.where('defaults')}: defaults must be a table, [defaults]")
    if not isinstance(figures, list) or not all(isinstance(each, dict) for each in figures):
        raise UsageError(f"{file.where('figure')}: figures must be tables, [[figure]]")
    if not figures:
        raise UsageError(f"{path}: holds no figure", "begin each with [[figure]]")
    _check_defaults(file, defaults)
    return [_figure(file, number, overwrite=overwrite) for number in range(len(figures))]


def _check_defaults(file: TomlFile, defaults: Mapping[str, Any]) -> None:
    everything = {name for command in _parsers().values() for name in _options(command)} - {"name"}
    for key in defaults:
        where = file.where("defaults", 0, key)
        if key in ("command", "images", "name"):
            raise UsageError(f"{where}: {key} belongs to a figure, not to all", "see [[figure]]")
        if field_name(key) not in everything:
            _refuse_options_of_runs(where, key)
            raise unknown_option(where, "", key, everything)


def _figure(file: TomlFile, number: int, *, overwrite: bool) -> SetFigure:
    table: Mapping[str, Any] = file.content["figure"][number]
    defaults: Mapping[str, Any] = file.content.get("defaults", {})
    name, command = _command(file, number)
    options = _options(command)
    folder = file.path.parent
    values: dict[str, Any] = {"out": DEFAULT_OUT, "skip_existing": not overwrite}
    lines: dict[str, int] = {}
    for key, value in defaults.items():
        if field_name(key) in options and key not in KINDS[name].unused:
            values |= as_default(file.where("defaults", 0, key), key, value, options)
    for key, value in table.items():
        where = file.where("figure", number, key)
        if key in ("command", "images"):
            continue
        if field_name(key) not in options:
            _refuse_options_of_runs(where, key)
            raise unknown_option(where, name, key, {**options, "images": None, "command": None})
        values |= as_default(where, key, value, options)
    for part in (file.keys_of("defaults"), file.keys_of("figure", number)):
        lines |= {field_name(key): line for key, line in part.items()}
    values |= {key: _below(folder, values[key]) for key in _PATHS if key in values}
    source = ConfigSource(file.path, lines, _line(file, number))
    arguments = ["--", *(_below(folder, image) for image in _images(file, number))]
    request: RunRequest = command.main(
        args=arguments, prog_name=name, standalone_mode=False, default_map=values, obj=source
    )
    return SetFigure(request, source)


def _command(file: TomlFile, number: int) -> tuple[str, Any]:
    name = file.content["figure"][number].get("command")
    where = file.where("figure", number, "command")
    known = _parsers()
    if name is None:
        raise UsageError(f"{where}: the figure has no command", f"one of {', '.join(known)}")
    if not isinstance(name, str) or name not in known:
        hint = did_you_mean(str(name), known) or f"one of {', '.join(known)}"
        raise UsageError(f"{where}: no figure command is called {name!r}", hint)
    return name, known[name]


def _images(file: TomlFile, number: int) -> list[str]:
    images = file.content["figure"][number].get("images")
    where = file.where("figure", number, "images")
    if isinstance(images, str):
        images = [images]
    if not images or not isinstance(images, list) or not all(isinstance(i, str) for i in images):
        raise UsageError(
            f"{where}: images must be a list of images", 'for instance images = ["cat.jpg"]'
        )
    return images


def _line(file: TomlFile, number: int) -> int:
    """The line on which a figure begins; for figures in one inline list, that of the list."""
    lines = file.lines
    return lines.get(("figure", number, ""), lines.get(("", 0, "figure"), 1))


def _refuse_options_of_runs(where: str, key: str) -> None:
    if field_name(key) in _OF_FOLDERS:
        hint = f"run the command itself over the images, with --{key}"
        raise UsageError(f"{where}: {key} is not an option of a figure", hint)
    if key in _OF_RENDER:
        raise UsageError(f"{where}: {key} is not an option of a figure", f"attnviz render --{key}")


def _options(command: Any) -> dict[str, Any]:
    found = options_of(command)
    return {name: option for name, option in found.items() if name not in _OF_RENDER | _OF_FOLDERS}


def _below(folder: Path, written: str) -> str:
    """A path of the file as seen from here, without detours; links keep their meaning."""
    if is_address(written):
        return written
    joined = os.path.join(folder, written)  # noqa: PTH118 - a Path would eat a trailing slash
    direct = os.path.normpath(joined)
    same = os.path.realpath(direct) == os.path.realpath(joined)
    return direct if same else joined


@lru_cache
def _parsers() -> dict[str, Any]:
    """The figure commands as parsers whose outcome is the request."""
    app = typer.Typer(add_completion=False)
    for name, kind in KINDS.items():
        app.command(name, cls=CommandWithFile)(figure_parser(kind))
    group: Any = typer.main.get_command(app)
    return {name: group.commands[name] for name in KINDS}
