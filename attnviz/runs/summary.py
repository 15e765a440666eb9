"""A figure of all images of a run: the distribution of entropy and distance of every head.

Values are counted in histograms as they come, so memory does not grow with the number of images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz._version import __version__
from attnviz.domain import SUMMARY
from attnviz.domain.kinds import kind_of
from attnviz.domain.requests import run_options
from attnviz.figures import draw_distributions
from attnviz.output.plan import OutputPlan
from attnviz.output.record import VERSION
from attnviz.output.write import write_figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import FloatArray, ModelInfo, WrittenFile
    from attnviz.domain.requests import RunRequest

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles that are drawn."""

BIN = {"entropy": 0.005, "distance": 0.25}
"""Bin widths: nats, and pixels of the model input."""


class Histogram:
    """Counts of non-negative values in bins of equal width."""

    def __init__(self, width: float) -> None:
        self._width = width
        self._counts = np.zeros(64, np.int64)

    def add(self, value: float) -> None:
        """Count a value."""
        index = int(value / self._width)
        if index >= self._counts.size:
            more = max(self._counts.size, index + 1 - self._counts.size)
            self._counts = np.pad(self._counts, (0, more))
        self._counts[index] += 1

    def quantiles(self, shares: Sequence[float]) -> FloatArray:
        """Quantiles with linear interpolation; every value counts as the centre of its bin."""
        cumulative = self._counts.cumsum()
        ranks = np.asarray(shares) * (cumulative[-1] - 1)
        low, high = (np.searchsorted(cumulative, side(ranks) + 1) for side in (np.floor, np.ceil))
        bins = low + (high - low) * (ranks - np.floor(ranks))
        return np.asarray((bins + 0.5) * self._width, np.float32)


class Summary:
    """The numbers of a run, collected image by image."""

    def __init__(self, model: ModelInfo) -> None:
        self._model = model
        self._images = 0
        self._limits: set[float] = set()
        self._histograms: dict[str, dict[tuple[int, int], Histogram]] = {name: {} for name in BIN}

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count the rows of an image's table: one per head, or per layer and head."""
        self._images += 1
        for row in rows:
            key = row["layer"], row["head"]
            for name, width in BIN.items():
                if name in row:
                    self._histograms[name].setdefault(key, Histogram(width)).add(row[name])
            if row["entropy_share"]:
                self._limits.add(round(row["entropy"] / row["entropy_share"], 4))

    def write(self, request: RunRequest) -> tuple[WrittenFile, ...]:
        """Draw and write the figure, ``COMMAND.summary.FORMAT`` in the output folder.

        No figure of an image can have that name, since theirs end in the command. Without any
        image there is none.

        Raises:
            OutputError: It cannot be written.
        """
        if not self._images:
            return ()
        distributions = {
            name: {key: each.quantiles(SHARES) for key, each in histograms.items()}
            for name, histograms in self._histograms.items()
            if histograms
        }
        limit = self._limits.pop() if len(self._limits) == 1 else None
        figures = draw_distributions(distributions, self._images, limit, self._model, request.style)
        return write_summary(figures, request, self._model, self._images)


def summary_plan(request: RunRequest) -> OutputPlan:
    """The names of the files about all images: ``COMMAND.summary.FORMAT`` in the output folder."""
    return OutputPlan(request.output.folder, kind_of(request.command).name, SUMMARY)


def write_summary(
    figures: Sequence[Figure],
    request: RunRequest,
    model: ModelInfo,
    images: int,
    beside: Mapping[str, str | None] | None = None,
) -> tuple[WrittenFile, ...]:
    """Write the pages of a figure about all images; its record names the files ``beside`` it.

    Raises:
        OutputError: It cannot be written.
    """
    record: dict[str, Any] = {
        "record": VERSION,
        "command": kind_of(request.command).name,
        "pictures": images,
        "model": model.name,
        "weights": model.weights,
        "weights_sha256": model.weights_sha256,
        "random_weights": model.random_weights,
        "options": run_options(request),
        "versions": {"attnviz": __version__},
    }
    plan, output = summary_plan(request), request.output
    return write_figures(figures, plan, output.formats, request.style.dpi, record, beside)
