"""What ``faithful`` measures over all images of a run: means and standard errors, by map.

Sums are kept and not the values, so memory does not grow with the number of images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.domain import sha256_of
from attnviz.domain.kinds.faithful import DEVIATION_ROW
from attnviz.figures import draw_mean_scores
from attnviz.output.write import write_csv
from attnviz.runs.summary import summary_plan, write_summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnviz.domain import ModelInfo, WrittenFile
    from attnviz.domain.requests import RunRequest


@dataclass
class RunningMean:
    """Mean and standard error of numbers that come one by one (Welford 1962)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Take a number."""
        self.count += 1
        before = value - self.mean
        self.mean += before / self.count
        self.squares += before * (value - self.mean)

    @property
    def standard_error(self) -> float | None:
        """Of the mean; None for a single number."""
        if self.count < 2:
            return None
        return math.sqrt(self.squares / (self.count - 1) / self.count)


class MeanScores:
    """The numbers of a run, collected image by image."""

    def __init__(self, model: ModelInfo) -> None:
        self._model = model
        self._images = 0
        self._means: dict[str, dict[str, RunningMean]] = {}

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take the rows of an image: one a map, and the mean of its random orders."""
        self._images += 1
        for row in rows:
            if row["map"] == DEVIATION_ROW:
                continue
            means = self._means.setdefault(row["map"], {})
            for name, value in row.items():
                if name != "map" and value is not None:
                    means.setdefault(name, RunningMean()).add(value)

    def rows(self) -> list[dict[str, Any]]:
        """One row a map: each mean under its name, and the standard error under ``NAME_se``."""
        names = list(next(iter(self._means.values()), {}))
        return [
            {"map": map_name}
            | {
                key: value
                for name in names
                for key, value in _columns(name, means.get(name, RunningMean()))
            }
            | {"images": max(each.count for each in means.values())}
            for map_name, means in self._means.items()
        ]

    def write(self, request: RunRequest) -> tuple[WrittenFile, ...]:
        """Write the table, ``faithful.summary.csv``, and its figure; nothing without any image.

        Raises:
            OutputError: They cannot be written.
        """
        if not self._images:
            return ()
        rows = self.rows()
        table = write_csv(summary_plan(request).path("csv"), rows, "summary")
        figures = draw_mean_scores(rows, self._images, self._model, request.style)
        beside = {"csv": sha256_of(table.path.read_bytes())}
        return (table, *write_summary(figures, request, self._model, self._images, beside))


def _columns(name: str, mean: RunningMean) -> tuple[tuple[str, float | None], ...]:
    return (name, mean.mean if mean.count else None), (f"{name}_se", mean.standard_error)
