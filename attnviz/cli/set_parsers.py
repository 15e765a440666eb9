"""The commands that a figure set takes, as parsers whose outcome is the request."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnviz.cli.commands import compare, evolve, explore
from attnviz.cli.commands.figure import figure_parser
from attnviz.cli.config import CommandWithFile, options_of
from attnviz.cli.signature import with_options
from attnviz.domain.kinds import KINDS
from attnviz.errors import UsageError
from attnviz.images.names import natural_key
from attnviz.output.plan import shortened_stem
from attnviz.runs.explore_plan import PAGE
from attnviz.storage import is_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attnviz.cli.panels import Panel

_PATHS = ("out", "checkpoint", "like", "mask", "test_registers")


@dataclass(frozen=True)
class SetParser:
    """One command of a set.

    command: typer's, whose outcome is the request. lists, texts: keys that are not options, each a
    list of paths or one path. arguments: the command line of these keys' paths. unused: options of
    ``[defaults]`` that do not reach it.
    """

    command: Any
    arguments: Callable[[Mapping[str, list[str]]], list[str]]
    lists: tuple[str, ...] = ("images",)
    texts: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    @property
    def own_keys(self) -> tuple[str, ...]:
        """Keys of ``[[figure]]`` that are not options of the command."""
        return ("command", *self.lists, *self.texts)

    def options(self, without: frozenset[str]) -> dict[str, Any]:
        """Its options by field name."""
        found = options_of(self.command)
        return {name: option for name, option in found.items() if name not in without}


def placed_values(
    name: str, folder: Path, values: dict[str, Any], own: Mapping[str, Any], image: str
) -> dict[str, Any]:
    """The values of options with paths seen from here. ``own``: what the figure itself says.

    Of a page ``out`` is the file; from ``[defaults]`` it is the folder of ``STEM.explore.html``.
    """
    placed = {key: _placed(folder, values[key]) for key in _PATHS if key in values}
    if name == "explore" and "out" not in own:
        stem = shortened_stem(Path(image).stem)
        placed["out"] = os.path.join(placed["out"], f"{stem}{PAGE}")  # noqa: PTH118 - an address
    return values | placed


def _placed(folder: Path, value: str | list[str]) -> Any:
    if isinstance(value, str):
        return below(folder, value)
    # --checkpoint of compare: PATH, or NAME=PATH.
    parts = [text.rpartition("=") for text in value]
    return [f"{name}{equals}{below(folder, path)}" for name, equals, path in parts]


def below(folder: Path, written: str) -> str:
    """A path of the file as seen from here, without detours; links keep their meaning."""
    if is_address(written):
        return written
    joined = os.path.join(folder, written)  # noqa: PTH118 - a Path would eat a trailing slash
    direct = os.path.normpath(joined)
    same = os.path.realpath(direct) == os.path.realpath(joined)
    return direct if same else joined


def expanded(where: str, written: str) -> list[str]:
    """The files of a glob, as a shell would give them, in natural order; any other path itself.

    Raises:
        UsageError: There is none; ``where`` stands in front.
    """
    if os.path.exists(written) or is_address(written):  # noqa: PTH110
        return [written]
    found = glob.glob(written)  # noqa: PTH207 - kept as written
    if not found:
        raise UsageError(f"{where}: {written} does not exist", "give files, folders or globs")
    return sorted(found, key=lambda path: natural_key(Path(path)))


def _images_last(paths: Mapping[str, list[str]]) -> list[str]:
    return ["--", *paths["images"]]


def _one_image(paths: Mapping[str, list[str]]) -> list[str]:
    return ["--", *paths["image"]]


def _checkpoints_and_image(paths: Mapping[str, list[str]]) -> list[str]:
    return ["--image", *paths["image"], "--", *paths["checkpoints"]]


@lru_cache
def set_parsers() -> dict[str, SetParser]:
    """The commands of a set by name."""
    app = typer.Typer(add_completion=False)
    add = partial(app.command, cls=CommandWithFile)
    for name, kind in KINDS.items():
        add(name)(figure_parser(kind))
    others: dict[str, tuple[Callable[..., Any], tuple[Panel, ...]]] = {
        "compare": (compare.compare_request, compare.PANELS),
        "evolve": (evolve.evolve_request, evolve.PANELS),
        "explore": (explore.explore_request, explore.PANELS),
    }
    for name, (request, panels) in others.items():
        add(name)(with_options(request, *panels, name=name))
    group: Any = typer.main.get_command(app)
    found = group.commands
    parsers = {
        name: SetParser(found[name], _images_last, unused=kind.unused)
        for name, kind in KINDS.items()
    }
    return parsers | {
        "compare": SetParser(found["compare"], _images_last, unused=("alpha",)),
        "evolve": SetParser(
            found["evolve"], _checkpoints_and_image, ("checkpoints",), ("image",), ("alpha",)
        ),
        "explore": SetParser(found["explore"], _one_image, (), ("image",)),
    }
