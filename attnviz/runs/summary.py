"""A figure about all pictures of a run: how entropy and distance of every head are distributed.

Values are counted in bins as they come, so that memory does not grow with the pictures.
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

    from attnviz.domain import FloatArray, ModelInfo, WrittenFile
    from attnviz.domain.requests import RunRequest

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles that are drawn."""

BIN = {"entropy": 0.005, "distance": 0.25}
"""Width of a bin: nats, and pixels of the model input."""


class Histogram:
    """Counts of values of 0 or more in bins of one width."""

    def __init__(self, width: float) -> None:
        self._width = width
        self._counts = np.zeros(64, np.int64)

    def add(self, value: float) -> None:
        """Count a value."""
        place = int(value / self._width)
        if place >= self._counts.size:
            more = max(self._counts.size, place + 1 - self._counts.size)
            self._counts = np.pad(self._counts, (0, more))
        self._counts[place] += 1

    def quantiles(self, shares: Sequence[float]) -> FloatArray:
        """Each quantile, linear between neighbours; every value counts as the middle of its bin."""
        running = self._counts.cumsum()
        ranks = np.asarray(shares) * (running[-1] - 1)
        below, above = (np.searchsorted(running, side(ranks) + 1) for side in (np.floor, np.ceil))
        places = below + (above - below) * (ranks - np.floor(ranks))
        return np.asarray((places + 0.5) * self._width, np.float32)


class Summary:
    """The numbers of a run, gathered picture by picture."""

    def __init__(self, model: ModelInfo) -> None:
        self._model = model
        self._pictures = 0
        self._limits: set[float] = set()
        self._found: dict[str, dict[tuple[int, int], Histogram]] = {name: {} for name in BIN}

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Count the rows of a picture's table: one a head, or one a layer and head."""
        self._pictures += 1
        for row in rows:
            place = row["layer"], row["head"]
            for name, width in BIN.items():
                if name in row:
                    found = self._found[name].setdefault(place, Histogram(width))
                    found.add(row[name])
            if row["entropy_share"]:
                self._limits.add(round(row["entropy"] / row["entropy_share"], 4))

    def write(self, request: RunRequest) -> tuple[WrittenFile, ...]:
        """Draw and write the figure, ``COMMAND.summary.FORMAT`` in the output folder.

        No figure of a picture can have that name: theirs end in the command. Without a picture
        there is none.

        Raises:
            OutputError: It cannot be written.
        """
        if not self._pictures:
            return ()
        spreads = {
            name: {place: one.quantiles(SHARES) for place, one in found.items()}
            for name, found in self._found.items()
            if found
        }
        limit = self._limits.pop() if len(self._limits) == 1 else None
        figures = draw_distributions(spreads, self._pictures, limit, self._model, request.style)
        plan = OutputPlan(request.output.folder, kind_of(request.command).name, SUMMARY)
        record = self._how_made(request)
        return write_figures(figures, plan, request.output.formats, request.style.dpi, record)

    def _how_made(self, request: RunRequest) -> dict[str, Any]:
        return {
            "record": VERSION,
            "command": kind_of(request.command).name,
            "pictures": self._pictures,
            "model": self._model.name,
            "weights": self._model.weights,
            "weights_sha256": self._model.weights_sha256,
            "random_weights": self._model.random_weights,
            "options": run_options(request),
            "versions": {"attnviz": __version__},
        }
