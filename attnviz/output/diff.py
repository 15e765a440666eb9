"""Whether two files of a figure show the same: pixels, drawings and numbers within a tolerance.

The records inside are compared for what was asked (image, weights, options), not for versions and
paths, so that a figure may be checked on another machine than the one that drew it. PDF and SVG
files whose bytes differ are compared by what they draw, where something here can draw them.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageSequence

from attnviz.output import diff_page, rasterise
from attnviz.output.current import IDENTITY, differences
from attnviz.output.read_record import read_record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from attnviz.domain import ByteArray

NUMBERS_WITHIN = 2e-5
"""Largest distance of two numbers in data files: float32 sums in another order."""

_GAP = 8
_PDF_RECORD = re.compile(rb"/Subject\s*\((?:[^\\()]|\\.|\([^()]*\))*\)", re.DOTALL)
_PDF_TABLE = re.compile(rb"\nxref\n.*", re.DOTALL)
_SVG_RECORD = re.compile(rb"<metadata>.*?</metadata>", re.DOTALL)


@dataclass(frozen=True)
class Difference:
    """How a file differs from what is expected, in words; ``image``: the two side by side."""

    words: str
    image: ByteArray | None = None


def compare(expected: Path, actual: Path, tolerance: float) -> Difference | None:
    """The difference of two files of one kind; None if there is none.

    Of figures (PNG, PDF, SVG, GIF), data files (NPZ), tables (CSV) and explorer pages (HTML).
    tolerance: of pixels, as a root mean square over pixels and channels, 0..255. PDF and SVG that
    nothing here can draw must be the same drawing, byte for byte.
    """
    if not expected.is_file():
        return Difference("is not there")
    asked = _asked(expected, actual)
    match actual.suffix:
        case ".png":
            result = _compare_pixels(_pixels(expected), _pixels(actual), tolerance)
        case ".npz":
            result = _compare_numbers(_arrays(expected), _arrays(actual))
        case ".gif":
            result = _compare_pages(_frames(expected), _frames(actual), tolerance, "frame")
        case ".html" | ".htm":
            words = diff_page.compare_pages(expected, actual, tolerance)
            result = None if words is None else Difference(words)
        case ".csv":
            result = _compare_numbers(_columns(expected), _columns(actual))
        case _:
            result = _compare_drawings(expected, actual, tolerance)
    if not asked:
        return result
    words = asked if result is None else f"{asked}; {result.words}"
    return Difference(words, None if result is None else result.image)


def drawing_of(path: Path) -> bytes:
    """The bytes of a PDF or SVG file without the record and what depends on its length."""
    data = path.read_bytes()
    if path.suffix == ".pdf":
        return _PDF_TABLE.sub(b"", _PDF_RECORD.sub(b"", data))
    return _SVG_RECORD.sub(b"", data)


def diff_image(expected: ByteArray, actual: ByteArray) -> ByteArray:
    """Expected, actual and their difference, left to right, (h, w, 3) uint8.

    The difference is the largest of the channels, black where there is none, stretched so that its
    largest value is white. Images of different sizes are placed on white, at the top left.
    """
    size = np.maximum(expected.shape[:2], actual.shape[:2])
    left, right = (_padded(pixels, size) for pixels in (expected, actual))
    distance = np.abs(left.astype(np.int16) - right).max(axis=2)
    stretched = (distance * (255 / max(int(distance.max()), 1))).astype(np.uint8)
    gap = np.full((size[0], _GAP, 3), 128, np.uint8)
    return np.concatenate([left, gap, right, gap, np.repeat(stretched[..., None], 3, 2)], axis=1)


def _asked(expected: Path, actual: Path) -> str:
    """What the two files were asked to be, where that is not the same, in words."""
    wanted = read_record(actual)
    if wanted is None:
        return ""
    record = read_record(expected)
    if record is None:
        return "has no record of how it was made"
    wanted = {key: wanted[key] for key in IDENTITY if key in wanted}
    names = differences(record, wanted)
    changes = [_change(name, record, wanted) for name in names]
    return f"was made with {', '.join(changes)}" if changes else ""


def _change(name: str, record: dict[str, Any], wanted: dict[str, Any]) -> str:
    if name in wanted:
        return f"another {name}"
    old, new = (each["options"].get(name, "its default") for each in (record, wanted))
    return f"{name} {old}, not {new}"


def _compare_drawings(expected: Path, actual: Path, tolerance: float) -> Difference | None:
    if drawing_of(expected) == drawing_of(actual):
        return None
    before, after = (rasterise.pages_of(path) for path in (expected, actual))
    if before is None or after is None:
        by = rasterise.RENDERERS.get(actual.suffix, "")
        return Difference(f"is another drawing{by and f' ({by} would tell how far)'}")
    return _compare_pages(before, after, tolerance, "page")


def _compare_pages(
    before: Sequence[ByteArray], after: Sequence[ByteArray], tolerance: float, name: str
) -> Difference | None:
    """The first page, or frame, that differs."""
    if len(before) != len(after):
        return Difference(f"has {len(before)} {name}s, not {len(after)}")
    for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
        result = _compare_pixels(old, new, tolerance)
        if result is not None:
            page = f"{name} {number}: " if len(before) > 1 else ""
            return Difference(page + result.words, result.image)
    return None


def _compare_pixels(
    before: ByteArray | None, after: ByteArray | None, tolerance: float
) -> Difference | None:
    if before is None or after is None:
        return Difference("is not a PNG file")
    if before.shape != after.shape:
        sizes = [f"{pixels.shape[0]}x{pixels.shape[1]}" for pixels in (before, after)]
        words = f"is {sizes[0]} pixels large, not {sizes[1]}"
        return Difference(words, diff_image(before, after))
    distance = np.abs(before.astype(np.int16) - after)
    rms = float(np.sqrt(np.mean(np.square(distance, dtype=np.float64))))
    if rms <= tolerance:
        return None
    changed = 100 * float((distance.max(axis=2) > 0).mean())
    words = f"RMS {rms:.3g}, largest {int(distance.max())} of 255, {changed:.2g} % of the pixels"
    return Difference(words, diff_image(before, after))


def _pixels(path: Path) -> ByteArray | None:
    try:
        with Image.open(io.BytesIO(path.read_bytes())) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError):
        return None


def _frames(path: Path) -> list[ByteArray]:
    """The frames of a GIF file; none of one that cannot be read."""
    try:
        with Image.open(io.BytesIO(path.read_bytes()), formats=["GIF"]) as image:
            return [np.asarray(each.convert("RGB")) for each in ImageSequence.Iterator(image)]
    except (OSError, SyntaxError, ValueError):
        return []


def _padded(pixels: ByteArray, size: NDArray[Any]) -> ByteArray:
    canvas = np.full((*size, 3), 255, np.uint8)
    canvas[: pixels.shape[0], : pixels.shape[1]] = pixels
    return canvas


def _arrays(path: Path) -> dict[str, NDArray[Any]] | None:
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files if name != "meta"}
    except (OSError, ValueError, EOFError):
        return None


def _columns(path: Path) -> dict[str, NDArray[Any]] | None:
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        rows = list(csv.reader(io.StringIO(text, newline="")))
        return {name: np.array(column, float) for name, *column in zip(*rows, strict=True)}
    except (OSError, ValueError):
        return None


def _compare_numbers(
    expected: dict[str, NDArray[Any]] | None, actual: dict[str, NDArray[Any]] | None
) -> Difference | None:
    if expected is None or actual is None:
        return Difference("cannot be read")
    if expected.keys() != actual.keys():
        return Difference(f"holds {', '.join(expected)}, not {', '.join(actual)}")
    for name, values in actual.items():
        if values.shape != expected[name].shape:
            return Difference(f"{name} has shape {expected[name].shape}, not {values.shape}")
        distance = float(np.abs(values.astype(float) - expected[name].astype(float)).max(initial=0))
        if not distance <= NUMBERS_WITHIN:
            return Difference(f"{name} differs by up to {distance:.2g}")
    return None
