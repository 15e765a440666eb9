"""The values at the two ends of a colour map, which are those on the colour bar."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.domain import Percentile, Scale
from attnviz.errors import UsageError
from attnviz.figures.parts.held import hold

if TYPE_CHECKING:
    from attnviz.domain import DrawStyle, FloatArray

FLAT = 1e-6
"""A map whose range is below this share of its highest value counts as flat."""

OWN_SCALE = "colours: each panel from its lowest to its highest value"


class Limits(NamedTuple):
    """The values at the dark and the bright end of a colour map; low < high.

    below, above: whether there are values beyond the limits, which have the colour of that end.
    """

    low: float
    high: float
    below: bool = False
    above: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """The two values."""
        return self.low, self.high

    def clipping(self, maps: Iterable[FloatArray]) -> Limits:
        """The same limits, marked where values of these maps lie beyond them.

        A value that differs from a limit by rounding to float32 alone is not beyond it.
        """
        arrays = list(maps)
        low, high = self.low - 1e-6 * abs(self.low), self.high + 1e-6 * abs(self.high)
        below = any(float(values.min()) < low for values in arrays)
        above = any(float(values.max()) > high for values in arrays)
        return self._replace(below=below, above=above)


def own_limits(values: FloatArray) -> Limits:
    """From the lowest to the highest value; a flat map is bright all over, zeros are dark."""
    low, high = float(values.min()), float(values.max())
    if high - low > FLAT * abs(high):
        return Limits(*hold(low, high))
    return from_zero(high)


def from_zero(high: float) -> Limits:
    """From 0 to the highest value."""
    return Limits(*hold(0.0, high if high > 0 else 1.0))


def common_limits(maps: Iterable[FloatArray], style: DrawStyle) -> Limits | None:
    """The limits that all panels of a figure share, or None if each has its own.

    A shared scale starts at zero, so that half the value is half way along the colour map. Fixed
    limits are marked where values lie beyond them; percentiles are those of all values together.
    """
    if style.scale is Scale.FIXED:
        return _fixed_limits(list(maps), style)
    if style.scale is Scale.SHARED:
        return from_zero(max(float(values.max()) for values in maps))
    return None


def _fixed_limits(maps: list[FloatArray], style: DrawStyle) -> Limits:
    assert style.fixed_limits is not None  # DrawStyle has seen to it
    values = np.concatenate([each.ravel() for each in maps]).astype(np.float64)
    low, high = (
        float(np.percentile(values, limit.percent)) if isinstance(limit, Percentile) else limit
        for limit in style.fixed_limits
    )
    if low < high:
        return Limits(*hold(low, high)).clipping(maps)
    if not any(isinstance(limit, Percentile) for limit in style.fixed_limits):
        raise UsageError(
            f"the limits of a fixed scale are {low:g} and {high:g}, the lower one comes first",
            "for example --scale fixed --limits 0,0.02",
        )
    # Percentiles of (nearly) constant values do not span a range.
    return own_limits(values.astype(np.float32))


def scale_text(style: DrawStyle) -> str:
    """The colour scale as the foot states it."""
    if style.scale is Scale.SHARED:
        return "one colour scale from 0"
    if style.scale is Scale.PANEL:
        return OWN_SCALE
    ends = style.fixed_limits or ()
    percentiles = [limit for limit in ends if isinstance(limit, Percentile)]
    if not percentiles:
        return "one fixed colour scale"
    names = [
        f"percentile {limit.percent:g}" if isinstance(limit, Percentile) else f"{limit:g}"
        for limit in ends
    ]
    return f"one colour scale from {names[0]} to {names[1]}"
