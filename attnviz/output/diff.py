"""Whether two files of a figure show the same: pixels, drawings and numbers within a tolerance.

The records inside are compared for what was asked (picture, weights, options), not for versions and
paths, so that a figure may be checked on another machine than the one that drew it.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from attnviz.output.current import IDENTITY, differences
from attnviz.output.read_record import read_record

if TYPE_CHECKING:
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
    """How a file differs from what is expected, in words; ``picture``: the two side by side."""

    words: str
    picture: ByteArray | None = None


def compare(expected: Path, actual: Path, tolerance: float) -> Difference | None:
    """The difference of two files of one kind (PNG, PDF, SVG, NPZ, CSV); None if there is none.

    tolerance: of PNG files, as a root mean square over pixels and channels, 0..255. PDF and SVG
    must be the same drawing, byte for byte.
    """
    if not expected.is_file():
        return Difference("is not there")
    asked = _asked(expected, actual)
    match actual.suffix:
        case ".png":
            found = _compare_pictures(expected, actual, tolerance)
        case ".npz":
            found = _compare_numbers(_arrays(expected), _arrays(actual))
        case ".csv":
            found = _compare_numbers(_columns(expected), _columns(actual))
        case _:
            same = drawing_of(expected) == drawing_of(actual)
            found = None if same else Difference("is another drawing")
    if not asked:
        return found
    words = asked if found is None else f"{asked}; {found.words}"
    return Difference(words, None if found is None else found.picture)


def drawing_of(path: Path) -> bytes:
    """The bytes of a PDF or SVG file without the record and what depends on its length."""
    data = path.read_bytes()
    if path.suffix == ".pdf":
        return _PDF_TABLE.sub(b"", _PDF_RECORD.sub(b"", data))
    return _SVG_RECORD.sub(b"", data)


def diff_image(expected: ByteArray, actual: ByteArray) -> ByteArray:
    """Expected, actual and their difference, left to right, (h, w, 3) uint8.

    The difference is the largest of the channels, black where there is none, stretched so that its
    largest value is white. Pictures of other sizes are laid on white, corner on corner.
    """
    size = np.maximum(expected.shape[:2], actual.shape[:2])
    left, right = (_laid_on_white(pixels, size) for pixels in (expected, actual))
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
    told = [_change(name, record, wanted) for name in names]
    return f"was made with {', '.join(told)}" if told else ""


def _change(name: str, record: dict[str, Any], wanted: dict[str, Any]) -> str:
    if name in wanted:
        return f"another {name}"
    old, new = (each["options"].get(name, "its default") for each in (record, wanted))
    return f"{name} {old}, not {new}"


def _compare_pictures(expected: Path, actual: Path, tolerance: float) -> Difference | None:
    before, after = _pixels(expected), _pixels(actual)
    if before is None or after is None:
        return Difference("is no PNG file")
    if before.shape != after.shape:
        sizes = [f"{pixels.shape[0]}x{pixels.shape[1]}" for pixels in (before, after)]
        words = f"is {sizes[0]} pixels large, not {sizes[1]}"
        return Difference(words, diff_image(before, after))
    distance = np.abs(before.astype(np.int16) - after)
    rms = float(np.sqrt(np.mean(np.square(distance, dtype=np.float64))))
    if rms <= tolerance:
        return None
    changed = float((distance.max(axis=2) > 0).mean())
    words = (
        f"RMS {rms:.3g}, largest {int(distance.max())} of 255, {100 * changed:.2g} % of the pixels"
    )
    return Difference(words, diff_image(before, after))


def _pixels(path: Path) -> ByteArray | None:
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError):
        return None


def _laid_on_white(pixels: ByteArray, size: NDArray[Any]) -> ByteArray:
    canvas = np.full((*size, 3), 255, np.uint8)
    canvas[: pixels.shape[0], : pixels.shape[1]] = pixels
    return canvas


def _arrays(path: Path) -> dict[str, NDArray[Any]] | None:
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files if name != "meta"}
    except (OSError, ValueError, EOFError):
        return None


def _columns(path: Path) -> dict[str, NDArray[Any]] | None:
    try:
        with path.open(newline="", encoding="utf-8", errors="surrogateescape") as stream:
            rows = list(csv.reader(stream))
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
