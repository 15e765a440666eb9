"""``attnviz info``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnviz.cli.reproduce import redraw_command, rows_of
from attnviz.domain import sha256_of
from attnviz.errors import ImageError, UsageError
from attnviz.images.names import printable
from attnviz.output.read_record import read_record
from attnviz.storage import path_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def info(
    figure: Annotated[
        Path,
        typer.Argument(
            metavar="FIGURE",
            parser=path_of,
            help="A figure (PNG, PDF, SVG, GIF), data file (NPZ) or page (HTML) of attnviz.",
            show_default=False,
        ),
    ],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON record, the command under 'redraw'.")
    ] = False,
    every_option: Annotated[
        bool,
        typer.Option("--all", help="The command with every option, those at their default too."),
    ] = False,
) -> int:
    """How a figure was made, read from the file itself, and the command that draws it again.

    The command gives the same bytes with the same versions, started in the folder in which the
    figure was first drawn: paths are as they were given there. Options at their default are left
    out of it; --all spells them too, for versions whose defaults differ.

    Example: attnviz info attnviz-out/photo.heads.png
    """
    record = _record_of(figure)
    # A figure about a whole folder does not hold the names of all its images.
    command = (
        None
        if "pictures" in record or "in_python" in record
        else redraw_command(record, figure, every_option=every_option)
    )
    for note in _notes(record):
        typer.echo(f"note: {note}", err=True)
    if as_json:
        typer.echo(json.dumps({"figure": str(figure), **record, "redraw": command}))
        return 0
    rows = list(_rows(record))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}".rstrip())
    if command is not None:
        typer.echo(f"\n{command}")
    return 0


_NEEDED = {
    **dict.fromkeys(("command", "model", "image", "image_sha256"), str),
    "image_size": list,
    "options": dict,
}
"""What a record must hold, for the command to be told."""

_NEEDED_OF_MANY = {"command": str, "model": str, "pictures": int, "options": dict}
"""The same of a figure about all images of a run."""


def _record_of(figure: Path) -> dict[str, Any]:
    if not figure.is_file():
        raise UsageError(f"{printable(figure)} is not a file", "give a figure that attnviz wrote")
    record = read_record(figure)
    needed = _NEEDED_OF_MANY if record is not None and "pictures" in record else _NEEDED
    if record is None or not all(isinstance(record.get(n), kind) for n, kind in needed.items()):
        raise ImageError(
            f"{printable(figure)} holds no record of how it was made",
            "figures and data files of attnviz do, unless another program saved them again",
        )
    return record


def _rows(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "command", record["command"]
    if "pictures" in record:
        yield "model", record["model"]
        yield "weights", record.get("weights", "")
        yield "weights SHA-256", record.get("weights_sha256") or "none"
        yield "pictures", str(record["pictures"])
    for row in _rows_with_an_image(record):
        yield "model", row["model"]
        yield "weights", row.get("weights", "")
        yield "weights SHA-256", row.get("weights_sha256") or "none"
        for checkpoint in row.get("checkpoints", ()):
            yield "checkpoint", f"{checkpoint['sha256'][:16]}  {printable(checkpoint['path'])}"
        yield "image", printable(row["image"])
        yield "image SHA-256", row["image_sha256"]
        if "mask_sha256" in row:
            yield "mask SHA-256", row["mask_sha256"]
        if "neurons_sha256" in row:
            yield "neurons SHA-256", row["neurons_sha256"]
        yield "image size", _by(row["image_size"])
        if "size" in row and "grid" in row:
            yield "model input", f"{_by(row['size'])}, {_by(row['grid'])} patches"
    yield "positions", record.get("architecture", {}).get("positions", "")
    yield "device", record.get("device", "")
    label = "options"
    for name, value in record["options"].items():
        text = " ".join(map(str, value)) if isinstance(value, list) else value
        yield label, name if text is True else f"{name} {text}"
        label = ""
    versions = record.get("versions", {})
    yield "versions", ", ".join(f"{name} {number}" for name, number in versions.items())


def _by(size: list[int]) -> str:
    return f"{size[0]}x{size[1]}"


def _notes(record: Mapping[str, Any]) -> Iterator[str]:
    """What stands in the way of drawing the figure again here."""
    if "in_python" in record:
        yield "drawn by the Python interface: no command line draws it again"
        return
    if "step" in record:
        yield f"drawn in training at step {record['step']}: --checkpoint has to give that step"
    images = {row["image"]: row["image_sha256"] for row in _rows_with_an_image(record)}
    for name, wanted in images.items():
        image = path_of(name)
        try:
            digest = sha256_of(image.read_bytes())
        except (OSError, ValueError):
            yield f"{printable(image)} does not exist; paths are relative to where it was drawn"
            continue
        if digest != wanted:
            yield f"{printable(image)} is not the image that the figure shows"


def _rows_with_an_image(record: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return () if "pictures" in record else rows_of(record)
