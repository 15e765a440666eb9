"""From a figure's record to the command line that draws it again, byte for byte."""

from __future__ import annotations

import inspect
import os
import shlex
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from attnviz.cli.commands import COMMANDS, load_command
from attnviz.domain import DEFAULT_MAX_PIXELS, DEFAULT_OUT
from attnviz.output.name import literal
from attnviz.output.plan import shortened_stem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ADDED = {"npz": "--save-data", "gif": "--animation"}
"""What comes beside a figure, and the option that asks for it."""

_OUT_IS_A_FILE = {"registers": ".json"}
"""Commands whose ``--out`` names a file beside the figure, and how its name ends."""
_PAGES = (".html", ".htm")
_PAGE = ".explore.html"


def redraw_command(record: Mapping[str, Any], figure: Path, *, every_option: bool = False) -> str:
    """What to type in a shell, where the run that drew the figure was started.

    every_option: also those with the value that this version takes by default, so that a version
    with other defaults draws the same.
    """
    return shlex.join(
        ["attnviz", str(record["command"]), *_arguments(record, figure, every_option=every_option)]
    )


def _arguments(record: Mapping[str, Any], figure: Path, *, every_option: bool) -> Iterator[str]:
    defaults = {} if every_option else _defaults(str(record["command"]))
    for name, value in record["options"].items():
        if name not in defaults or not _alike(value, defaults[name]):
            yield from _option(name, value)
    yield from _option("device", record.get("device"))
    largest = max(height * width for height, width in pictures_of(record).values())
    if largest > DEFAULT_MAX_PIXELS:
        yield from _option("max-pixels", largest)
    images = list(pictures_of(record))
    if figure.suffix.lower() in _PAGES:
        if figure != PurePath(DEFAULT_OUT, f"{shortened_stem(_plain_stem(images[0]))}{_PAGE}"):
            yield from _option("out", str(figure))
    else:
        yield from _destination(record, figure, images)
    if "checkpoints" in record:
        yield from _option("image", images[0])
        images = [str(checkpoint["path"]) for checkpoint in record["checkpoints"]]
    elif record["command"] in _OUT_IS_A_FILE:
        images = list(map(str, record["inputs"]))
    # "-" alone would be a list on standard input.
    images = [f".{os.sep}-" if image == "-" else image for image in images]
    yield from ("--", *images) if any(image.startswith("-") for image in images) else images


def _destination(record: Mapping[str, Any], figure: Path, images: Sequence[str]) -> Iterator[str]:
    """Format, folder and name of a figure."""
    suffix = figure.suffix.lower().removeprefix(".")
    if suffix in _ADDED:
        yield _ADDED[suffix]
    elif suffix != "png":
        yield from _option("format", suffix)
    stem = _stem(figure, str(record["command"]))
    if record["command"] in _OUT_IS_A_FILE:
        yield from _option("out", str(figure.parent / f"{stem}{_OUT_IS_A_FILE[record['command']]}"))
        return
    if str(figure.parent) != DEFAULT_OUT:
        yield from _option("out", str(figure.parent))
    if len(images) > 1 or stem != shortened_stem(_plain_stem(images[0])):
        yield from _option("name", literal(stem))


def rows_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """How each row of a figure that has several was made; the record itself of any other."""
    rows = record.get("rows")
    whole = ("model", "image", "image_sha256", "image_size")
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and all(key in row for key in whole) for row in rows
    ):
        return [record]
    return rows or [record]


def pictures_of(record: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """The images that a figure shows, each once, with height and width."""
    return {str(row["image"]): tuple(row["image_size"]) for row in rows_of(record)}


def _defaults(command: str) -> dict[str, Any]:
    """The value of every option of a command where none is given, as the command line spells it."""
    if command not in COMMANDS:
        return {}
    parameters = inspect.signature(load_command(command)).parameters.values()
    return {each.name.replace("_", "-"): each.default for each in parameters}


def _alike(value: Any, default: Any) -> bool:
    if isinstance(value, list):
        return isinstance(default, list) and list(map(str, value)) == list(map(str, default))
    return str(value) == str(default)


def _option(name: str, value: Any) -> Iterator[str]:
    if value is True:
        yield f"--{name}"
    elif isinstance(value, list):
        for item in value:
            yield from _option(name, item)
    elif value is not None and value is not False:
        text = str(value)
        yield from (f"--{name}={text}",) if text.startswith("-") else (f"--{name}", text)


def _plain_stem(image: str) -> str:
    return PurePath(PurePath(image).name).stem


def _stem(figure: Path, command: str) -> str:
    """What stands before ``.COMMAND`` in the name of a figure, a page or an overlay.

    A figure that was renamed keeps its new name as the stem.
    """
    stem, found, _ = figure.name.rpartition(f".{command}.")
    return stem if found and stem else figure.stem
