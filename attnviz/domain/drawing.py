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
    Percentile,
    Scale,
    take_choices,
)
from attnviz.domain.forms import LIMITS, TEXT, WIDTH, choice, number
from attnviz.domain.options import option
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

    width is in inches. ``fixed_limits`` are the colour limits of ``Scale.FIXED``, as values or as
    percentiles.

    Raises:
        UsageError: A fixed scale without limits, limits of another scale, or pages of too many
            pixels.
    """

    width: float = option(
        PAGE_INCHES,
        WIDTH,
        "Width of the figure on paper: 3.35 in, 7 in, or your own.",
        show="page",
    )
    dpi: int = option(
        DEFAULT_DPI,
        number("N", least=30, most=2400, type=int),
        "Pixels per inch of PNG files and of images inside PDF files.",
    )
    cmap: str = option(
        DEFAULT_CMAP,
        TEXT,
        "Colour map of matplotlib.",
        metavar="NAME",
        check="attnviz.figures.parts.colour_maps:check_cmap",
    )
    scale: Scale = option(
        Scale.PANEL,
        choice(Scale),
        "Colour limits: of each panel, one for all panels, or --limits.",
    )
    fixed_limits: tuple[float | Percentile, float | Percentile] | None = option(
        None,
        LIMITS,
        "The limits of --scale fixed: values, or percentiles of all values, as p1,p99.",
        name="limits",
    )
    interpolation: Interpolation = option(
        Interpolation.NEAREST,
        choice(Interpolation),
        "How cells are enlarged; nearest shows what was measured.",
    )
    alpha: float = option(
        DEFAULT_ALPHA,
        number("0..1", least=0, most=1),
        "Strength of the colours laid over an image.",
    )

    def __post_init__(self) -> None:
        take_choices(self)
        if self.scale is Scale.FIXED and self.fixed_limits is None:
            raise UsageError("--scale fixed needs --limits", "for instance --limits 0,0.02")
        if self.scale is not Scale.FIXED and self.fixed_limits is not None:
            raise UsageError("--limits needs --scale fixed")
        check_page_pixels(self.width, self.dpi)


@dataclass(frozen=True)
class Provenance:
    """How a figure was made: stored in the file, in the data file and in the JSON record.

    ``options`` holds every option of the command that shapes the numbers or the drawing, by its
    command-line name, as JSON-ready values. ``device`` is where the model ran: cpu, cuda or mps.
    ``like_sha256``: of the second image of ``relevance``. ``mask_sha256``: of the mask of
    ``evolve``.
    ``rows``: of a figure of several models or images, how each row was made; the rest of the
    record is then that of the first.
    ``in_python``: made by a function of the Python interface, whose image or model may be in memory
    alone, so that no command line draws it again.
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
    mask_sha256: str | None = None
    in_python: bool = False


@dataclass(frozen=True)
class WrittenFile:
    """A file that stands complete under its final name."""

    path: Path
    kind: str


@dataclass(frozen=True)
class SharedScaleStyle(DrawStyle):
    """How a figure is drawn whose panels are there to be compared."""

    scale: Scale = option(
        Scale.SHARED,
        choice(Scale),
        "Colour limits: one for all maps of a kind, of each map, or --limits.",
    )
