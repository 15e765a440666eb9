"""From a figure's record to the command line that draws it again, byte for byte."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from attnviz.domain import DEFAULT_MAX_PIXELS, DEFAULT_OUT
from attnviz.output.plan import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def redraw_command(record: Mapping[str, Any], figure: Path) -> str:
    """What to type in a shell, where the run that drew the figure was started."""
    return shlex.join(["attnviz", str(record["command"]), *_arguments(record, figure)])


def _arguments(record: Mapping[str, Any], figure: Path) -> Iterator[str]:
    for name, value in record["options"].items():
        yield from _option(name, value)
    yield from _option("device", record.get("device"))
    height, width = record["image_size"]
    if height * width > DEFAULT_MAX_PIXELS:
        yield from _option("max-pixels", height * width)
    suffix = figure.suffix.lower().removeprefix(".")
    if suffix == "npz":
        yield "--save-data"
    elif suffix != "png":
        yield from _option("format", suffix)
    if str(figure.parent) != DEFAULT_OUT:
        yield from _option("out", str(figure.parent))
    image = str(record["image"])
    stem = _stem(figure, str(record["command"]))
    if stem != shortened(_plain_stem(image)):
        yield from _option("name", stem)
    # "-" alone would be a list on standard input.
    yield from ("--", f".{os.sep}-") if image == "-" else _positional(image)


def _option(name: str, value: Any) -> Iterator[str]:
    if value is True:
        yield f"--{name}"
    elif isinstance(value, list):
        for item in value:
            yield from _option(name, item)
    elif value is not None and value is not False:
        text = str(value)
        yield from (f"--{name}={text}",) if text.startswith("-") else (f"--{name}", text)


def _positional(image: str) -> Iterator[str]:
    yield from ("--", image) if image.startswith("-") else (image,)


def _plain_stem(image: str) -> str:
    from pathlib import PurePath

    return PurePath(PurePath(image).name).stem


def _stem(figure: Path, command: str) -> str:
    """What stands before ``.COMMAND`` in the name of a figure, a page or an overlay.

    A figure that was renamed keeps its new name as the stem.
    """
    stem, found, _ = figure.name.rpartition(f".{command}.")
    return stem if found and stem else figure.stem
