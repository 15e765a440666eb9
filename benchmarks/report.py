"""What the parts of the benchmarks measure, and their numbers as Markdown."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MAIN = "measured"
BATCHES = "measured on a device"
"""The blocks of a page that a run writes, by the name in their markers."""


@dataclass(frozen=True)
class Plan:
    """How much to measure: input sides in pixels, the image, and whether to be brief.

    The part ``batches`` alone runs on ``device``, for every batch size and number type.
    """

    sides: tuple[int, ...]
    image: Path
    quick: bool
    device: str = "cpu"
    batches: tuple[int, ...] = (1,)
    precisions: tuple[str, ...] = ("float32",)

    def rounds(self, side: int) -> int:
        """Timed rounds at a size: fewer where one takes long."""
        most = 9 if side <= 256 else 5
        return 3 if self.quick else most


def table(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A Markdown table; rows by their name."""
    lines = [f"| {title} | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()]
    return "\n".join(lines)


def load() -> str:
    """The load average of the last minute, where the system has one."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def write_block(page: Path, block: str, text: str) -> None:
    """Replace the text between the markers of a block of a page.

    Raises:
        ValueError: The page does not have both markers, in order.
    """
    first, last = f"<!-- {block}: begin -->", f"<!-- {block}: end -->"
    before, begin, rest = page.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not (begin and end):
        raise ValueError(f"{page} has no {first} ... {last}")
    page.write_text(f"{before}{first}\n{text}\n{last}{after}", encoding="utf-8")
