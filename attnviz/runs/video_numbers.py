"""The numbers of a video: a row a frame for tables, and curves over time."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.domain import SUMMARY
from attnviz.figures.curves import draw_curves
from attnviz.output.write import write_figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnviz.domain import ModelInfo, WrittenFile
    from attnviz.domain.requests import RunRequest
    from attnviz.domain.video import FrameTime
    from attnviz.output.plan import OutputPlan

CURVES = ("entropy", "distance")


def frame_row(time: FrameTime, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row of all numbers of a frame: ``frame``, ``seconds``, and ``entropy.head3`` and so on.

    What a figure has a row for (heads, layers, queries) is behind a point in the names of columns,
    where there are several; text and whole numbers that are the same in all rows stand once.
    """
    columns: dict[str, Any] = {"frame": time.index, "seconds": round(time.seconds, 6)}
    if not rows:
        return columns
    labels = [name for name, value in rows[0].items() if isinstance(value, int | str)]
    varying = [name for name in labels if len({str(row[name]) for row in rows}) > 1]
    for row in rows:
        where = ".".join(_label(name, row[name]) for name in varying)
        for name, value in row.items():
            if name not in varying:
                key = name if name in labels or not where else f"{name}.{where}"
                columns.setdefault(key, value)
    return columns


def _label(name: str, value: Any) -> str:
    return str(value) if isinstance(value, str) else f"{name}{value}"


class VideoCurves:
    """Entropy and distance of every head over the frames, eight bytes a number."""

    def __init__(self) -> None:
        self._seconds = array("d")
        self._values: dict[str, dict[tuple[int, int], array[float]]] = {}
        self._limit = 0.0

    def add(self, time: FrameTime, rows: Sequence[Mapping[str, Any]]) -> None:
        """The rows of a frame's table: one per head, or per layer and head."""
        self._seconds.append(time.seconds)
        for row in rows:
            for name in CURVES:
                if name in row:
                    of_name = self._values.setdefault(name, {})
                    key = row["layer"], row["head"]
                    of_name.setdefault(key, array("d")).append(row[name])
            if row.get("entropy_share"):
                self._limit = row["entropy"] / row["entropy_share"]

    def write(
        self, request: RunRequest, plan: OutputPlan, info: ModelInfo, record: Mapping[str, Any]
    ) -> tuple[WrittenFile, ...]:
        """Draw and write the figure, ``STEM.COMMAND.summary.FORMAT``.

        Raises:
            OutputError: It cannot be written.
        """
        from attnviz.output.plan import OutputPlan as Plan

        curves = {
            name: {key: np.asarray(values, np.float32) for key, values in of_name.items()}
            for name, of_name in self._values.items()
        }
        seconds = np.asarray(self._seconds, np.float64)
        figures = draw_curves(curves, seconds, self._limit or None, info, request.style)
        target = Plan(plan.folder, f"{plan.stem}.{plan.command}", SUMMARY)
        return write_figures(figures, target, request.output.formats, request.style.dpi, record)
