"""How a figure was made, as JSON that travels inside it: written by ``write.py``, read back here.

PNG keeps it in a text chunk named ``attnviz``, PDF in the document's subject, SVG in its
description, NPZ in the array ``meta``, GIF
in its comment. It is ASCII, with sorted keys, and holds no date.
"""

from __future__ import annotations

import dataclasses
import html
import json
import re
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from attnviz.domain import Provenance, sha256_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from attnviz.domain import WrittenFile
    from attnviz.output.plan import OutputPlan
    from attnviz.requests import OutputRequest

Made = Provenance | Mapping[str, Any]
"""How a file was made: a picture's provenance, or a record that is none of one picture."""

KEY = "attnviz"
VERSION = 1
"""Of the record's layout; a reader that meets a higher one reads what it knows."""

_PNG_START = b"\x89PNG\r\n\x1a\n"
_MOST_TEXT = 1 << 20
_PDF_SUBJECT = re.compile(rb"/Subject\s*\(((?:[^\\()]|\\.|\([^()]*\))*)\)", re.DOTALL)
_PDF_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
_SVG_DESCRIPTION = re.compile(rb"<dc:description>(.*?)</dc:description>", re.DOTALL)
IDENTITY = (
    *("command", "model", "weights", "weights_sha256", "image_sha256", "like_sha256"),
    *("options", "size"),
)
"""The entries of a record that make a figure what it is: a change of work changes one of them."""

_PLACES = ("checkpoint", "like")
"""Options that say where something lies, not what it is; its hash does."""


def to_dict(provenance: Provenance) -> dict[str, Any]:
    """The record as JSON-ready values; sizes as [height, width]."""
    model = dataclasses.asdict(provenance.model)
    geometry = provenance.geometry
    rows = {"rows": [_row(row) for row in provenance.rows]} if provenance.rows else {}
    shown: dict[str, Any] = {}
    if provenance.step is not None:
        shown["step"] = provenance.step
    if provenance.checkpoints:
        shown["checkpoints"] = [{"path": p, "sha256": s} for p, s in provenance.checkpoints]
    return {
        **rows,
        **shown,
        "record": VERSION,
        "command": provenance.command,
        "model": model.pop("name"),
        "weights": model.pop("weights"),
        "weights_sha256": model.pop("weights_sha256"),
        "random_weights": model.pop("random_weights"),
        "prefix": model["prefix"],
        "architecture": model,
        "image": provenance.image,
        "image_sha256": provenance.image_sha256,
        "like_sha256": provenance.like_sha256,
        "image_size": list(geometry.original),
        "size": list(geometry.model_input),
        "grid": list(geometry.grid),
        "region": list(geometry.region),
        "options": provenance.options,
        "device": provenance.device,
        "versions": provenance.versions,
    }


def _row(provenance: Provenance) -> dict[str, Any]:
    """What is a row's own in the record of a figure with several."""
    whole = to_dict(provenance)
    return {
        key: whole[key]
        for key in (
            *("model", "weights", "weights_sha256", "random_weights"),
            *("image", "image_sha256", "image_size", "size", "grid", "region"),
        )
    }


def to_json(made: Made) -> str:
    """The record as one line of ASCII, the same bytes for the same values."""
    return json.dumps(_record(made), sort_keys=True, ensure_ascii=True, allow_nan=False)


def with_files(made: Made, beside: Mapping[str, str | None]) -> Mapping[str, Any]:
    """The record of a figure that is complete only with other files beside it.

    ``beside``: what follows ``STEM.COMMAND.`` in their names (``2.png``, ``head3.png``, ``csv``),
    each with the SHA-256 of its content where it carries no record of its own.
    """
    record = _record(made)
    return {**record, "beside": dict(beside)} if beside else record


def _record(made: Made) -> Mapping[str, Any]:
    return made if isinstance(made, Mapping) else to_dict(made)


def read_record(path: Path) -> dict[str, Any] | None:
    """The record inside a PNG, PDF, SVG or NPZ file; None without one, or in a broken file.

    Nothing is drawn or decompressed: of a PNG only the chunks before the pixels are read.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        return None
    try:
        with path.open("rb") as stream:
            text = reader(stream)
        record = json.loads(text) if text else None
    except (OSError, ValueError, KeyError, struct.error):
        return None
    return record if isinstance(record, dict) else None


def record_of(
    provenance: Provenance, written: Sequence[WrittenFile], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The record of a finished picture: how it was made, its files, and its table of numbers."""
    return {
        **to_dict(provenance),
        "files": [{"path": str(file.path), "kind": file.kind} for file in written],
        "table": [dict(row) for row in rows],
    }


def identity(provenance: Provenance) -> dict[str, Any]:
    """The entries ``IDENTITY`` of the record."""
    record = json.loads(to_json(provenance))
    return {key: record[key] for key in IDENTITY}


def differences(record: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """The entries of a record, or of its options, that are not as in ``wanted``, by name."""
    names = []
    for key, value in wanted.items():
        if key != "options":
            names += [key] if record.get(key) != value else []
            continue
        old = record.get("options") or {}
        both = sorted(old.keys() | value.keys())
        names += [n for n in both if n not in _PLACES and old.get(n) != value.get(n)]
    return tuple(names)


def same_work(record: dict[str, Any] | None, provenance: Provenance) -> bool:
    """Whether a file with this record shows what would be drawn now: image, weights, options."""
    return record is not None and not differences(record, identity(provenance))


def is_current(plan: OutputPlan, output: OutputRequest, provenance: Provenance) -> bool:
    """Whether everything that would be written stands there already, made in the same way."""
    return stands(plan, output, identity(provenance))


def stands(plan: OutputPlan, output: OutputRequest, wanted: Mapping[str, Any]) -> bool:
    """Whether every file that would be written is there, and its record agrees with ``wanted``.

    That goes for each format, the data, and what the record says stands beside: further pages,
    overlays, and the table of scores, which has no record and goes by its content.
    """
    if wanted["options"].get("csv") and not plan.path("csv").is_file():
        return False
    for path in recorded_paths(plan, output):
        record = read_record(path)
        if record is None or differences(record, wanted):
            return False
        beside = record.get("beside", {})
        if not all(_stands_beside(plan, tail, beside[tail], wanted) for tail in beside):
            return False
    return True


def _stands_beside(
    plan: OutputPlan, tail: str, digest: str | None, wanted: Mapping[str, Any]
) -> bool:
    path = plan.path(tail)
    if digest is None:
        record = read_record(path)
        return record is not None and not differences(record, wanted)
    try:
        return sha256_of(path.read_bytes()) == digest
    except OSError:
        return False


def recorded_paths(plan: OutputPlan, output: OutputRequest) -> list[Path]:
    """The files of a picture that carry a record: each format's first page, and the data."""
    suffixes = [image_format.value for image_format in output.formats]
    return [plan.path(suffix) for suffix in (*suffixes, *(["npz"] if output.save_data else []))]


def _from_png(stream: BinaryIO) -> str | None:
    if stream.read(8) != _PNG_START:
        return None
    while True:
        head = stream.read(8)
        length, kind = struct.unpack(">I4s", head)
        if kind in {b"IDAT", b"IEND"}:
            return None
        if kind != b"tEXt" or length > _MOST_TEXT:
            stream.seek(length + 4, 1)
            continue
        key, _, text = stream.read(length).partition(b"\0")
        stream.seek(4, 1)
        if key == KEY.encode():
            return text.decode("latin-1")


def _from_pdf(stream: BinaryIO) -> str | None:
    # The information dictionary stands uncompressed, and near the end.
    found = None
    for found in _PDF_SUBJECT.finditer(stream.read()):  # noqa: B007  (the last one counts)
        pass
    if found is None:
        return None
    unescaped = re.sub(
        rb"\\(.)", lambda part: _PDF_ESCAPES.get(part[1], part[1]), found[1], flags=re.DOTALL
    )
    return unescaped.decode("ascii")


def _from_svg(stream: BinaryIO) -> str | None:
    found = _SVG_DESCRIPTION.search(stream.read(_MOST_TEXT))
    return html.unescape(found[1].decode("utf-8")) if found else None


def _from_npz(stream: BinaryIO) -> str | None:
    import zipfile

    import numpy as np

    try:
        with np.load(stream, allow_pickle=False) as arrays:
            return str(arrays["meta"].item())
    except (zipfile.BadZipFile, EOFError, NotImplementedError):
        return None


def _from_gif(stream: BinaryIO) -> str | None:
    from PIL import Image

    with Image.open(stream, formats=["GIF"]) as image:
        comment = image.info.get("comment", b"")
    return bytes(comment).decode("ascii")


_READERS = {
    ".gif": _from_gif,
    ".png": _from_png,
    ".pdf": _from_pdf,
    ".svg": _from_svg,
    ".npz": _from_npz,
}
