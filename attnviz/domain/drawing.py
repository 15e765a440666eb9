"""How a figure is drawn, how it was made, and the file that stands for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnviz.domain.choices import (
    DEFAULT_ALPHA,
    DEFAULT_CMAP,
    DEFAULT_DPI,
    PAGE_INCHES,
    Interpolation,
    Scale,
    take_choices,
)
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain.geometry import FitGeometry
    from attnviz.domain.model import ModelInfo

MOST_PAGE_PIXELS = 500_000_000
"""Largest page that is drawn: 2 GB while it is, as red, green, blue and alpha."""

_LONGEST_SIDE = 65_535
"""Longest side of a page in pixels that matplotlib draws."""

_TALLEST_INCHES = 9.0
_TALLEST_RATIO = 1.3


def tallest_page(width: float) -> float:
    """Height in inches at which a page of this width is full."""
    return max(_TALLEST_INCHES, _TALLEST_RATIO * width)


def largest_dpi(width: float, height: float | None = None) -> int:
    """The most pixels an inch with which a page can be drawn; without a height, any page."""
    height = tallest_page(width) if height is None else height
    by_area = math.isqrt(int(MOST_PAGE_PIXELS / (width * height)))
    return min(by_area, int(_LONGEST_SIDE / max(width, height)))


def check_page_pixels(width: float, dpi: int) -> None:
    """Raise UsageError for pages that would have too many pixels. width: in inches."""
    largest = largest_dpi(width)
    if dpi > largest:
        pixels = width * tallest_page(width) * dpi**2
        raise UsageError(
            f"--dpi {dpi} is too much for --width {width:g}: a page may have "
            f"{pixels / 1e6:,.0f} million pixels, more than {MOST_PAGE_PIXELS // 10**6} million",
            f"the largest for that width is --dpi {largest}",
        )


@dataclass(frozen=True)
class DrawStyle:
    """How a figure is drawn; the same for every kind of figure.

    width is in inches. ``fixed_limits`` are the colour limits of ``Scale.FIXED``.

    Raises:
        UsageError: A choice that does not exist, or pages of too many pixels.
    """

    width: float = PAGE_INCHES
    dpi: int = DEFAULT_DPI
    cmap: str = DEFAULT_CMAP
    scale: Scale = Scale.PANEL
    fixed_limits: tuple[float, float] | None = None
    interpolation: Interpolation = Interpolation.NEAREST
    alpha: float = DEFAULT_ALPHA

    def __post_init__(self) -> None:
        take_choices(self)
        check_page_pixels(self.width, self.dpi)


@dataclass(frozen=True)
class Provenance:
    """How a figure was made: stored in the file, in the data file and in the JSON record.

    ``options`` holds every option of the command that shapes the numbers or the drawing, by its
    command-line name, as JSON-ready values. ``device`` is where the model ran: cpu, cuda or mps.
    ``like_sha256``: of the second picture of ``relevance``.
    ``rows``: of a figure of several models or pictures, how each row was made; the rest of the
    record is then that of the first.
    ``step``: of a model that was in training. ``checkpoints``: path and SHA-256 of each, where a
    figure shows several.
    """

    command: str
    model: ModelInfo
    image: str
    image_sha256: str
    geometry: FitGeometry
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    device: str = "cpu"
    like_sha256: str | None = None
    rows: tuple[Provenance, ...] = ()
    step: int | None = None
    checkpoints: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class WrittenFile:
    """A file that stands complete under its final name."""

    path: Path
    kind: str
