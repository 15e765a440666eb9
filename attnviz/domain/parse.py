"""What users write for an option, as values: pure text to numbers, with the option in each error.

Layers, heads and sizes are only read here; whether a model has them is asked once it is known.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Literal

from attnviz.domain.choices import COLUMN_INCHES, NARROWEST_INCHES, PAGE_INCHES, Percentile
from attnviz.domain.geometry import Size
from attnviz.domain.query import Query
from attnviz.domain.shard import Shard
from attnviz.errors import UsageError
from attnviz.storage import is_address, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from attnviz.domain.requests import BandChoice, SizeRequest, ValueRange

INDEX = re.compile(r"[+-]?\d{1,6}", re.ASCII)
INDEX_LIST = re.compile(r"[+-]?\d{1,6}(-[+-]?\d{1,6})?(,[+-]?\d{1,6}(-[+-]?\d{1,6})?)*", re.ASCII)
_RANGE = re.compile(r"([+-]?\d{1,6})(?:-([+-]?\d{1,6}))?", re.ASCII)
_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?", re.ASCII)
_COUNTING = "layers and heads count from 0; -1 is the last"


def parse_index(option: str, text: str) -> int:
    """One layer: ``11``, or ``-1`` for the last.

    Raises:
        UsageError: Not a whole number.
    """
    written = text.strip()
    if not INDEX.fullmatch(written):
        raise UsageError(f"{option}: {text!r} is not a layer number", _COUNTING)
    return int(written)


def parse_indices(option: str, text: str) -> tuple[int, ...]:
    """Several layers or heads: ``0,2``, ``0-3`` (both ends taken), ``-2,-1``, ``-4--1``.

    Order is kept. Raises:
        UsageError: Anything else; the message repeats the part that is wrong.
    """
    indices: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise UsageError(
                f"{option}: {part!r} is neither a number nor a range",
                f"{_COUNTING}; e.g. 0,2 or 0-3",
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if (first < 0) != (last < 0):
            raise UsageError(
                f"{option}: the range {part.strip()!r} mixes counting from the start and the end",
                "write both ends the same way, e.g. 0-3 or -4--1",
            )
        if last < first:
            raise UsageError(f"{option}: the range {part.strip()!r} runs backwards")
        indices.extend(range(first, last + 1))
    return tuple(indices)


def optional_indices(option: str, text: str | None) -> tuple[int, ...] | None:
    """Like ``parse_indices``; None and ``all`` mean every one."""
    if text is None or text.strip().lower() == "all":
        return None
    return parse_indices(option, text)


def parse_query(option: str, text: str) -> Query:
    """``cls``, ``mean``, ``pool``, or a register such as ``r1``.

    Raises:
        UsageError: Anything else.
    """
    try:
        return Query(text.strip().lower())
    except ValueError:
        raise UsageError(
            f"{option}: {text!r} is not a query",
            "write cls, mean, pool, or a register by its number from 1, e.g. r1",
        ) from None


def parse_shares(option: str, text: str) -> float | tuple[float, ...]:
    """One share above 0 and at most 1: ``0.5``; or several: ``0.9,0.7,0.5``.

    Raises:
        UsageError: Not numbers, or one out of range.
    """
    parts = text.split(",")
    hint = "write one share, or several between commas, e.g. 0.9,0.7,0.5"
    values = _numbers(option, text, len(parts), hint)
    shares = tuple(in_range(option, value, above=0, most=1) for value in values)
    return shares if len(shares) > 1 else shares[0]


def parse_size(text: str | None) -> SizeRequest:
    """``480`` (shorter side), ``480x640`` (height x width), ``original``, or None."""
    if text is None:
        return None
    written = text.strip().lower()
    if written == "original":
        return "original"
    match = re.fullmatch(r"(\d{1,6})(?:[x\u00d7](\d{1,6}))?", written, re.ASCII)
    if match is None or int(match[1]) == 0 or (match[2] and int(match[2]) == 0):
        raise UsageError(
            f"--size: {text!r} is not a size",
            "write 480 (shorter side), 480x640 (height x width) or original",
        )
    return Size(int(match[1]), int(match[2])) if match[2] else int(match[1])


def parse_device(text: str) -> str:
    """``auto``, ``cpu``, ``mps``, ``cuda`` or ``cuda:1``."""
    written = text.strip().lower()
    if not _DEVICE.fullmatch(written):
        raise UsageError(
            f"--device: {text!r} is not a device", "use auto, cpu, mps, cuda or cuda:1"
        )
    return written


def parse_count(option: str, text: str, *, least: int) -> int | None:
    """A whole number of at least ``least``, or None for ``auto``."""
    written = text.strip().lower()
    if written == "auto":
        return None
    if not re.fullmatch(r"\d{1,9}", written, re.ASCII) or int(written) < least:
        raise UsageError(f"{option}: {text!r} is neither auto nor a number from {least} up")
    return int(written)


def parse_shard(text: str | None) -> Shard | None:
    """``0/8``: the first of eight parts.

    Raises:
        UsageError: Not of that form, or a part that does not exist.
    """
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", text, re.ASCII)
    if match is None:
        raise UsageError(f"--shard: {text!r} is not a shard", "write I/N, from 0: 0/8 to 7/8")
    index, count = int(match[1]), int(match[2])
    if index >= count:
        last = f"the last of {count} is {count - 1}/{count}" if count else "there must be one"
        raise UsageError(
            f"--shard: there is not a shard {index} of {count}", f"count from 0: {last}"
        )
    return Shard(index, count)


def parse_width(text: str) -> float:
    """Inches: ``column``, ``page`` or a number."""
    named = {"column": COLUMN_INCHES, "page": PAGE_INCHES}.get(text.strip().lower())
    if named is not None:
        return named
    try:
        width = float(text)
    except ValueError:
        raise UsageError(
            f"--width: {text!r} is not a width", "use column, page or a number of inches"
        ) from None
    return in_range("--width", width, least=NARROWEST_INCHES, most=100.0)


def parse_limits(text: str | None) -> tuple[float | Percentile, float | Percentile] | None:
    """``MIN,MAX`` with MIN below MAX; each is a value, or a percentile such as ``p99``.

    Raises:
        UsageError: Not of that form, or MIN is not below MAX.
    """
    if text is None:
        return None
    hint = "write the lowest and the highest value, e.g. 0,0.02, or percentiles, e.g. p1,p99"
    parts = [part.strip().lower() for part in text.split(",")]
    is_percentile = [part.startswith("p") for part in parts]
    values = ",".join(part.removeprefix("p") for part in parts)
    try:
        low, high = _numbers("--limits", values, 2, hint)
    except UsageError:
        raise UsageError(f"--limits: {text!r} is not two values or percentiles", hint) from None
    for number, percentile in zip((low, high), is_percentile, strict=True):
        if percentile and not 0 <= number <= 100:
            raise UsageError(f"--limits: percentile {number:g} is not in 0 to 100")
    # A value and a percentile are compared once there are values.
    if is_percentile[0] == is_percentile[1] and not low < high:
        raise UsageError(f"--limits: {text!r} is empty, the first one must be the smaller one")
    return (
        Percentile(low) if is_percentile[0] else low,
        Percentile(high) if is_percentile[1] else high,
    )


def parse_channels(
    option: str, text: str | None, *, positive: bool = False
) -> tuple[float, float, float] | None:
    """Red, green, blue: ``0.485,0.456,0.406``, or one number for all three."""
    if text is None:
        return None
    count = 1 if "," not in text else 3
    values = _numbers(option, text, count, "write one number, or three for red, green and blue")
    if positive and min(values) <= 0:
        raise UsageError(f"{option}: {text!r} must be above 0")
    red, green, blue = values if count == 3 else values * 3
    return red, green, blue


def parse_bands(text: str | None) -> BandChoice | None:
    """``3,2,1``: which bands of a file, from 1, are red, green and blue; ``4``: that one as grey.

    Raises:
        UsageError: Not one or three numbers from 1 up.
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    numbers = [int(part) for part in parts if re.fullmatch(r"\d{1,5}", part, re.ASCII)]
    if len(numbers) != len(parts) or len(parts) not in (1, 3) or min(numbers) < 1:
        raise UsageError(
            f"--bands: {text!r} is not a choice of bands",
            "write the bands that are red, green and blue, from 1, e.g. 3,2,1; or one for grey",
        )
    red, green, blue = numbers if len(numbers) == 3 else numbers * 3
    return red, green, blue


def parse_range(text: str | None) -> ValueRange | None:
    """``MIN,MAX``: the values of a file that become black and white; or ``auto``.

    Raises:
        UsageError: Anything else, or MIN not below MAX.
    """
    if text is None or text.strip().lower() == "auto":
        return None if text is None else "auto"
    low, high = _numbers("--range", text, 2, "write MIN,MAX, e.g. 0,4095, or auto")
    if not low < high:
        raise UsageError(f"--range: {text!r} is empty, the first number must be the smaller one")
    return low, high


def parse_cells(texts: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """``r,c``: row and column of a patch, from 0."""
    cells = []
    for text in texts:
        parts = [part.strip() for part in text.split(",")]
        if len(parts) != 2 or not all(INDEX.fullmatch(part) for part in parts):
            raise UsageError(f"--at: {text!r} is not a patch", "write row,column from 0, e.g. 3,7")
        cells.append((int(parts[0]), int(parts[1])))
    return tuple(cells)


def parse_pairs(option: str, text: str) -> int | Literal["all"]:
    """A number of pairs from 1 up, or ``all``.

    Raises:
        UsageError: Anything else.
    """
    if text.strip().lower() == "all":
        return "all"
    if not re.fullmatch(r"\d{1,6}", text.strip(), re.ASCII) or int(text) < 1:
        raise UsageError(
            f"{option}: {text!r} is not a number of pairs", "write 10, for instance, or all"
        )
    return int(text)


def parse_points(texts: Sequence[str]) -> tuple[tuple[float, float], ...]:
    """``x,y`` in pixels of the original image."""
    points = []
    for text in texts:
        x, y = _numbers("--xy", text, 2, "write x,y in pixels of the image, e.g. 120,80")
        points.append((x, y))
    return tuple(points)


def parse_model_args(texts: Sequence[str]) -> dict[str, int]:
    """``name=number`` pairs, such as ``depth=6``; one text may hold several, between commas."""
    sizes: dict[str, int] = {}
    for text in ",".join(texts).split(",") if texts else ():
        match = re.fullmatch(r"\s*([A-Za-z_][\w-]*)\s*=\s*(\d{1,9})\s*", text, re.ASCII)
        if match is None:
            raise UsageError(
                f"--model-arg: {text!r} is not a size", "write name=number, e.g. depth=6"
            )
        if match[1] in sizes:
            raise UsageError(f"--model-arg: {match[1]} is given twice")
        sizes[match[1]] = int(match[2])
    return sizes


def check_checkpoint(path: Path) -> Path:
    """The path of weights, which must exist."""
    if not path.exists():
        raise UsageError(f"--checkpoint: {path} does not exist", "check the path, or leave it out")
    return path


def check_mask(path: Path) -> Path:
    """The path of a mask, which must be a file."""
    if not path.is_file():
        raise UsageError(f"--mask: {path} is not a file")
    return path


def local_path(text: str) -> Path:
    """A path on this machine, of an option that takes no address.

    Raises:
        UsageError: An address.
    """
    path = path_of(text)
    if is_address(str(path)):
        raise UsageError(
            f"{path} is an address, and this has to be a path on this machine",
            "copy it here and give the path of the copy",
        )
    return path


def in_range(
    option: str,
    value: float,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> float:
    """The value itself, if it is finite and inside the limits.

    Raises:
        UsageError: Outside; the message states the limits.
    """
    bounds: tuple[tuple[float | None, str, Callable[[float, float], bool]], ...] = (
        (least, "at least", lambda a, b: a >= b),
        (above, "above", lambda a, b: a > b),
        (most, "at most", lambda a, b: a <= b),
        (below, "below", lambda a, b: a < b),
    )
    given = [(bound, words, holds) for bound, words, holds in bounds if bound is not None]
    if math.isfinite(value) and all(holds(value, bound) for bound, _, holds in given):
        return value
    rule = " and ".join(f"{words} {bound:g}" for bound, words, _ in given)
    if not math.isfinite(value):
        rule = f"a finite number {rule}"
    raise UsageError(f"{option}: {value:g} is out of range, it must be {rule}")


def _numbers(option: str, text: str, count: int, hint: str) -> tuple[float, ...]:
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count or not all(math.isfinite(value) for value in values):
        raise UsageError(f"{option}: {text!r} is not {count} number{'s' * (count > 1)}", hint)
    return values
