"""Layout arithmetic in inches, measured from the top left corner of the page."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from attnviz.domain.choices import NARROWEST_INCHES

MARGIN = 0.03
GAP = 0.09
SLOT_MIN = 1.02
"""Narrowest panel with room for a title such as "Head 3 · H 5.87" at 7.5 pt."""
FLAT_MIN = 0.5
"""Least height, in inches, of the panel of a wide image."""
SLOT_TIGHT = 0.74
"""Narrowest panel of a tall image, with room for the short form of a title."""
PANEL_MAX = 2.6
"""Tallest panel in inches; taller ones are scaled down."""
ASPECT_MAX = 12.0
PAGE_HEIGHT = 9.0
WIDTH_MIN = NARROWEST_INCHES
"""Narrowest figure, in inches, whose headings fit at 7 pt."""


class Rect(NamedTuple):
    """A rectangle in inches from the top left corner of the page."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """The bottom edge."""
        return self.top + self.height


class Grid(NamedTuple):
    """Equal slots side by side, each with a panel of the image's shape at its left."""

    columns: int
    slot: float
    panel_width: float
    panel_height: float


def shown_aspect(height: float, width: float) -> float:
    """Aspect ratio (width / height) of a panel: that of the image, limited to 12 : 1."""
    return min(max(width / height, 1 / ASPECT_MAX), ASPECT_MAX)


def grid_of(
    count: int, width: float, aspect: float, *, at_least: int = 1, tallest: float = PANEL_MAX
) -> Grid:
    """Columns and panel size for ``count`` panels across ``width`` inches.

    As many columns as remain readable, in even rows: 7 panels become 4 + 3, not 6 + 1. Tall panels
    get more and narrower columns, so that they do not fill the page.
    at_least: columns of a single row, so that a few panels do not become huge. tallest: height of
    panels in inches.
    """
    narrowest = max(SLOT_MIN, min(FLAT_MIN * aspect, (width - GAP) / 2))
    most = max(1, int((width + GAP) / (narrowest + GAP)))
    tightest = max(most, int((width + GAP) / (SLOT_TIGHT + GAP)))
    limit = min(tallest, 0.5 * width)
    fewest = min(at_least, most) if count <= most else 1
    columns = fewest
    for rows in range(math.ceil(count / most), 0, -1):
        needed = max(math.ceil(count / rows), fewest)
        if needed > tightest:
            break
        columns = needed
        if _slot(width, columns) / aspect <= limit:
            break
    slot = _slot(width, columns)
    panel_height = min(slot / aspect, tallest)
    panel_width = panel_height * aspect
    return Grid(columns, min(slot, max(panel_width, SLOT_MIN)), panel_width, panel_height)


def _slot(width: float, columns: int) -> float:
    return (width - (columns - 1) * GAP) / columns


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between low and high, at most ``most``, in steps of 1, 2 or 5 times 10^k."""
    span = (high - low) or 1.0
    raw = span / max(most - 1, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def tick_text(values: list[float]) -> list[str]:
    """Tick labels with the same number of decimals, as few as are exact.

    Small values are in scientific notation: 2e-4, 4e-4.
    """
    largest = max(map(abs, values), default=0.0)
    if 0 < largest < 1e-3:
        return _scientific(values)
    for decimals in range(6):
        if all(abs(round(v, decimals) - v) <= 1e-9 * largest for v in values):
            return [f"{v:.{decimals}f}" for v in values]
    return [f"{v:g}" for v in values]


def _scientific(values: list[float]) -> list[str]:
    """Values in scientific notation with as few digits as are exact: 0, 5e-5, 1.5e-4."""
    labels = ["0"]
    for digits in range(6):
        labels = ["0" if v == 0 else f"{v:.{digits}e}" for v in values]
        if all(math.isclose(float(label), v) for label, v in zip(labels, values, strict=True)):
            break
    trimmed = (re.sub(r"\.?0*e", "e", label) if "." in label else label for label in labels)
    return [label.replace("e-0", "e-") for label in trimmed]
