"""Numbers of any type and range to 8 bits, by a stated rule and never by a guess.

Without a range of the caller's:

- Whole numbers of more than 8 bits: v / 257, rounded, so that 0..65535 becomes 0..255 and v * 257
  becomes v again. Values outside 0..65535 are refused.
- Floats: 0..1 is scaled by 255; otherwise 0..255 is taken as it is; anything else is refused.

Where values fill less than a quarter of that range, a note says so and names the option that
stretches them. With a range, MIN becomes 0, MAX 255, and what lies outside is clipped; "auto" runs
from the 1st to the 99th percentile of all bands together. NaN (not a number) is laid on white.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnviz.errors import ImageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import BoolArray, ByteArray
    from attnviz.domain.requests import ValueRange

PERCENTILES = (1.0, 99.0)
"""Where ``auto`` begins and ends."""

_FEW = 0.25
"""Share of the stated range below which an image is called dark."""

_LARGEST_WHOLE = 65535
_ROWS_AT_A_TIME = 1 << 22


class EightBits(NamedTuple):
    """Values as bytes. ``missing``: where they are not a number, None where they all are."""

    values: ByteArray
    missing: BoolArray | None
    notes: tuple[str, ...]


def to_bytes(values: NDArray[Any], value_range: ValueRange | None, *, top: int = 0) -> EightBits:
    """Values (height, width) or (height, width, bands) of whole numbers or floats as 8 bits.

    ``top``: the largest whole number that the file's format has, 65535 unless it is given.

    Raises:
        ImageError: Values without a known meaning. The message does not name the image.
    """
    missing = _missing(values)
    if missing is not None and (value_range is None or missing.all()):
        raise _not_a_number(values, missing)
    low, high = _extremes(values, missing)
    if value_range == "auto":
        value_range = _automatic(values, missing)
        label = f"{_text(value_range)} (percentiles 1 and 99)" if value_range else ""
    else:
        label = "" if value_range is None else _text(value_range)
    if value_range is not None:
        notes = [f"values from {label} stretched to 0..255"]
        if missing is not None:
            notes.append(f"{_share(missing)} of the pixels are NaN (not a number), laid on white")
        return EightBits(_stretched(values, *value_range), missing, tuple(notes))
    if values.dtype.kind == "f":
        return EightBits(*_floats_to_bytes(values, low, high))
    return EightBits(*_integers_to_bytes(values, int(low), int(high), top or _LARGEST_WHOLE))


def _missing(values: NDArray[Any]) -> BoolArray | None:
    if values.dtype.kind != "f":
        return None
    each = np.isnan(values)
    missing: BoolArray = each if each.ndim == 2 else np.asarray(each.any(axis=2))
    return missing if missing.any() else None


def _extremes(values: NDArray[Any], missing: BoolArray | None) -> tuple[Any, Any]:
    known = values if missing is None else values[~missing]
    return known.min(), known.max()


def _not_a_number(values: NDArray[Any], missing: BoolArray) -> ImageError:
    if missing.all():
        return ImageError("has float values that are all NaN (not a number)", "export it again")
    low, high = (float(each) for each in _extremes(values, missing))
    return ImageError(
        f"has float values that are NaN (not a number) in {_share(missing)} of its pixels; the "
        f"others run from {_number(low)} to {_number(high)}",
        f"{_option(low, high)} or --range auto reads those and lays NaN on white",
    )


def _share(missing: BoolArray) -> str:
    return f"{100 * float(missing.mean()):.2g} %"


def _automatic(values: NDArray[Any], missing: BoolArray | None) -> tuple[float, float] | None:
    """The percentiles of all finite values; the extremes where those are equal, or None."""
    known = values if missing is None else values[~missing]
    if known.dtype.kind == "f":
        known = known[np.isfinite(known)]
    if not known.size:
        return None
    low, high = (float(each) for each in np.percentile(known, PERCENTILES, method="nearest"))
    if low == high:
        low, high = float(known.min()), float(known.max())
    return (low, high) if low < high else None


def _stretched(values: NDArray[Any], low: float, high: float) -> ByteArray:
    """(v - low) / (high - low) * 255, clipped and rounded, some rows at a time."""
    result = np.empty(values.shape, np.uint8)
    rows = max(1, _ROWS_AT_A_TIME // max(1, values[0].size))
    for start in range(0, len(values), rows):
        part = values[start : start + rows].astype(np.float64)
        part = (np.clip(part, low, high) - low) * (255 / (high - low))
        result[start : start + rows] = np.rint(np.nan_to_num(part, copy=False))
    return result


def _integers_to_bytes(
    values: NDArray[Any], low: int, high: int, top: int
) -> tuple[ByteArray, None, tuple[str, ...]]:
    if values.dtype == np.uint8:
        return values, None, ()
    if low < 0 or high > top:
        raise ImageError(
            f"has integer values from {low} to {high}; only 0..{top} has a known meaning",
            f"{_option(low, high)} or --range auto stretches them",
        )
    if top == _LARGEST_WHOLE:
        scaled, rule = (values.astype(np.uint32) + 128) // 257, "1/257"
    else:
        scaled, rule = (values.astype(np.uint32) * 510 + top) // (2 * top), f"255/{top}"
    bits = top.bit_length()
    what = f"{bits}-bit grey" if values.ndim == 2 else f"{bits} bits a channel"
    return scaled.astype(np.uint8), None, (f"{what}, scaled by {rule}", *_dark(low, high, top))


def _floats_to_bytes(
    values: NDArray[Any], low: Any, high: Any
) -> tuple[ByteArray, None, tuple[str, ...]]:
    if not (low >= 0 and high <= 255):
        raise ImageError(
            f"has float values from {low:g} to {high:g}; only 0..1 and 0..255 have a known meaning",
            f"{_option(low, high)} or --range auto stretches them",
        )
    if high <= 1:
        scaled = np.rint(values * np.float32(255)).astype(np.uint8)
        return scaled, None, ("float values 0..1 times 255", *_dark(low, high, 1))
    scaled = np.rint(values).astype(np.uint8)
    return scaled, None, ("float values 0..255 taken as they are", *_dark(low, high, 255))


def _dark(low: Any, high: Any, top: int) -> tuple[str, ...]:
    """The note for an image that uses little of its range."""
    if high > _FEW * top or low == high:
        return ()
    share = f"{100 * float(high) / top:.2g} %"
    run = f"values run from {_number(low)} to {_number(high)}, {share} of 0..{top}"
    return (f"{run}, and are drawn dark; {_option(low, high)} or --range auto stretches them",)


def _option(low: Any, high: Any) -> str:
    """The option that stretches values from ``low`` (or 0, which keeps black black) to ``high``."""
    if not (np.isfinite(low) and np.isfinite(high)):
        return "--range MIN,MAX"
    return f"--range={_number(low)},{_number(high)}" if low < 0 else f"--range 0,{_number(high)}"


def _text(value_range: tuple[float, float]) -> str:
    return " to ".join(map(_number, value_range))


def _number(value: Any) -> str:
    """A number as a user would write it."""
    return str(int(value)) if float(value).is_integer() else f"{float(value):.4g}"
