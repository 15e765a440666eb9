"""A figure set in TOML becomes requests, through the parser of the command line itself.

    [defaults]                      # options of any figure command, under their own names
    model = "dino_vits8"
    out = "../docs/figures"

    [[figure]]
    command = "heads"
    images = ["../photos/cat.jpg"]
    name = "cat"                    # optional: the figure is cat.heads.png
    threshold = 0.6

Paths are relative to the file. A key of ``[defaults]`` reaches the commands that have it. For
``evolve`` a figure has ``checkpoints`` and ``image``, for ``explore`` one ``image``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnviz.cli.config import as_default, unknown_option
from attnviz.cli.set_parsers import SetParser, below, expanded, placed_values, set_parsers
from attnviz.cli.toml_file import TomlFile, load_toml
from attnviz.domain import DEFAULT_OUT
from attnviz.domain.config_source import ConfigSource, field_name
from attnviz.domain.near_names import did_you_mean
from attnviz.errors import UsageError
from attnviz.runs.figure_set import SetFigure

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from attnviz.runs.set_commands import AnyRequest

_OF_RENDER = frozenset({"json", "quiet"})
"""Options that say what a run prints: attnviz render has them for all figures together."""

_OF_FOLDERS = frozenset({"table", "summary", "engine", "ray_address", "cpus_per_model", "shard"})
"""Options about all images of a run, which a set of figures is not."""

_NOT_HERE = _OF_RENDER | _OF_FOLDERS


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
    known = set_parsers().values()
    everything = {name for parser in known for name in parser.options(_NOT_HERE)} - {"name"}
    for key in defaults:
        where = file.where("defaults", 0, key)
        if key in ("command", "images", "image", "checkpoints", "name"):
            raise UsageError(f"{where}: {key} belongs to a figure, not to all", "see [[figure]]")
        if field_name(key) not in everything:
            _refuse_options_of_runs(where, key)
            raise unknown_option(where, "", key, everything)


def _figure(file: TomlFile, number: int, *, overwrite: bool) -> SetFigure:
    table: Mapping[str, Any] = file.content["figure"][number]
    defaults: Mapping[str, Any] = file.content.get("defaults", {})
    name, parser = _command(file, number)
    options = parser.options(_NOT_HERE)
    values: dict[str, Any] = {"out": DEFAULT_OUT, "skip_existing": not overwrite}
    lines: dict[str, int] = {}
    for key, value in defaults.items():
        if field_name(key) in options and key not in parser.unused:
            values |= as_default(file.where("defaults", 0, key), key, value, options)
    for key, value in table.items():
        where = file.where("figure", number, key)
        if key in parser.own_keys:
            continue
        if field_name(key) not in options:
            _refuse_options_of_runs(where, key)
            raise unknown_option(where, name, key, {**options, **dict.fromkeys(parser.own_keys)})
        values |= as_default(where, key, value, options)
    for part in (file.keys_of("defaults"), file.keys_of("figure", number)):
        lines |= {field_name(key): line for key, line in part.items()}
    paths = {key: _paths(file, number, key) for key in parser.lists}
    paths |= {key: _paths(file, number, key, single=True) for key in parser.texts}
    image = next(iter(paths.values()))[0]
    values = placed_values(name, file.path.parent, values, table, image)
    source = ConfigSource(file.path, lines, _line(file, number))
    request: AnyRequest = parser.command.main(
        args=parser.arguments(paths),
        prog_name=name,
        standalone_mode=False,
        default_map=values,
        obj=source,
    )
    return SetFigure(request, source, skip_existing=values["skip_existing"])


def _command(file: TomlFile, number: int) -> tuple[str, SetParser]:
    name = file.content["figure"][number].get("command")
    where = file.where("figure", number, "command")
    known = set_parsers()
    if name is None:
        raise UsageError(f"{where}: the figure has no command", f"one of {', '.join(known)}")
    if not isinstance(name, str) or name not in known:
        hint = did_you_mean(str(name), known) or f"one of {', '.join(known)}"
        raise UsageError(f"{where}: no figure command is called {name!r}", hint)
    return name, known[name]


def _paths(file: TomlFile, number: int, key: str, *, single: bool = False) -> list[str]:
    """The paths of a key as seen from here; ``single``: the one path of it."""
    value = file.content["figure"][number].get(key)
    where = file.where("figure", number, key)
    paths = [value] if isinstance(value, str) else value
    texts = isinstance(paths, list) and all(isinstance(each, str) for each in paths)
    if not paths or not texts or (single and len(paths) > 1):
        wanted, example = ("one path", "cat.jpg") if single else (f"a list of {key}", ["cat.jpg"])
        if key == "checkpoints":
            example = ["runs/*.pth"]
        written = str(example).replace("'", '"') if isinstance(example, list) else f'"{example}"'
        raise UsageError(f"{where}: {key} must be {wanted}", f"for instance {key} = {written}")
    placed = [below(file.path.parent, each) for each in paths]
    if key != "checkpoints":
        return placed
    return [path for each in placed for path in expanded(f"{where}: {key}", each)]


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
