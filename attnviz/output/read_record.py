"""The record inside a figure or data file, read back: the only reader of records."""

from __future__ import annotations

import html
import json
import re
import struct
from typing import TYPE_CHECKING, Any, BinaryIO

from attnviz.output.record import KEY

if TYPE_CHECKING:
    from pathlib import Path


_PNG_START = b"\x89PNG\r\n\x1a\n"
_MOST_TEXT = 1 << 20
_PDF_SUBJECT = re.compile(rb"/Subject\s*\(((?:[^\\()]|\\.|\([^()]*\))*)\)", re.DOTALL)
_PDF_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
_PAGE_RECORD = re.compile(
    rb"<script type=\"application/json\" id=\"record\">(.*?)</script>", re.DOTALL
)
_SVG_DESCRIPTION = re.compile(rb"<dc:description>(.*?)</dc:description>", re.DOTALL)


def read_record(path: Path) -> dict[str, Any] | None:
    """The record inside a figure, data file or page; None without one, or in a broken file.

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
    # The information dictionary is not compressed, and near the end: the last subject counts.
    subjects = list(_PDF_SUBJECT.finditer(stream.read()))
    if not subjects:
        return None
    unescaped = re.sub(
        rb"\\(.)", lambda part: _PDF_ESCAPES.get(part[1], part[1]), subjects[-1][1], flags=re.DOTALL
    )
    return unescaped.decode("ascii")


def _from_svg(stream: BinaryIO) -> str | None:
    description = _SVG_DESCRIPTION.search(stream.read(_MOST_TEXT))
    return html.unescape(description[1].decode("utf-8")) if description else None


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


def _from_page(stream: BinaryIO) -> str | None:
    # It stands behind the image, and before the queries and keys.
    record = _PAGE_RECORD.search(stream.read())
    return record[1].decode("utf-8") if record else None


_READERS = {
    ".html": _from_page,
    ".htm": _from_page,
    ".gif": _from_gif,
    ".png": _from_png,
    ".pdf": _from_pdf,
    ".svg": _from_svg,
    ".npz": _from_npz,
}
