"""The values at the two ends of a colour map, which are those on the colour bar."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from attnviz.domain import Scale
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.domain import DrawStyle, FloatArray

FLAT = 1e-6
"""A map whose range is below this share of its highest value counts as flat."""

OWN_SCALE = "colours: each panel from its lowest to its highest value"


class Limits(NamedTuple):
    """The values at the dark and the bright end of a colour map; low < high."""

    low: float
    high: float


def own_limits(values: FloatArray) -> Limits:
    """From the lowest to the highest value; a flat map is bright all over, zeros are dark."""
    low, high = float(values.min()), float(values.max())
    if high - low > FLAT * abs(high):
        return Limits(low, high)
    return from_zero(high)


def from_zero(high: float) -> Limits:
    """From 0 to the highest value."""
    return Limits(0.0, high) if high > 0 else Limits(0.0, 1.0)


def common_limits(maps: Iterable[FloatArray], style: DrawStyle) -> Limits | None:
    """The limits that all panels of a figure share, or None if each has its own.

    A shared scale starts at zero, so that half the value is half way along the colour map.
    """
    if style.scale is Scale.FIXED:
        if style.fixed_limits is None or not style.fixed_limits[0] < style.fixed_limits[1]:
            raise UsageError(
                "a fixed scale needs its two limits, the lower one first",
                "for example --scale fixed --limits 0,0.02",
            )
        return Limits(*style.fixed_limits)
    if style.scale is Scale.SHARED:
        return from_zero(max(float(values.max()) for values in maps))
    return None


def scale_text(style: DrawStyle) -> str:
    """The colour scale as the foot states it."""
    if style.scale is Scale.FIXED:
        return "one fixed colour scale"
    return "one colour scale from 0" if style.scale is Scale.SHARED else OWN_SCALE
