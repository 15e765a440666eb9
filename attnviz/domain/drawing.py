"""How a figure is drawn, how it was made, and the file that stands for it."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain.geometry import FitGeometry
    from attnviz.domain.model import ModelInfo


@dataclass(frozen=True)
class Percentile:
    """A percentile, 0..100, of all values that share a colour scale; written ``p99``."""

    percent: float

    def __post_init__(self) -> None:
        if not 0 <= self.percent <= 100:
            raise ValueError(f"Percentile.percent is {self.percent}, not in 0..100")

    def __repr__(self) -> str:
        return f"p{self.percent:g}"


@dataclass(frozen=True)
class DrawStyle:
    """How a figure is drawn; the same for every kind of figure.

    width is in inches. ``fixed_limits`` are the colour limits of ``Scale.FIXED``, as values or as
    percentiles.
    """

    width: float = PAGE_INCHES
    dpi: int = DEFAULT_DPI
    cmap: str = DEFAULT_CMAP
    scale: Scale = Scale.PANEL
    fixed_limits: tuple[float | Percentile, float | Percentile] | None = None
    interpolation: Interpolation = Interpolation.NEAREST
    alpha: float = DEFAULT_ALPHA

    def __post_init__(self) -> None:
        take_choices(self)


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
