"""What a part of the benchmarks is asked for, and its numbers as Markdown."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"


@dataclass(frozen=True)
class Plan:
    """How much to measure: input sides in pixels, the picture, and whether to be brief."""

    sides: tuple[int, ...]
    picture: Path
    quick: bool

    def rounds(self, side: int) -> int:
        """Timed rounds at a size: fewer where one takes long."""
        most = 9 if side <= 256 else 5
        return 3 if self.quick else most


def table(title: str, sides: Sequence[int], rows: Mapping[str, Sequence[str]]) -> str:
    """A Markdown table with one column a size."""
    lines = [
        f"| {title} | " + " | ".join(f"{side} px" for side in sides) + " |",
        "| --- |" + " ---: |" * len(sides),
    ]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()]
    return "\n".join(lines)


def load() -> str:
    """How many processes wanted a core over the last minute, where the system tells."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def write_between_markers(page: Path, text: str) -> None:
    """Put ``text`` in place of what a page has between its two markers.

    Raises:
        ValueError: The page has not both markers, in order.
    """
    whole = page.read_text(encoding="utf-8")
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no {BEGIN} ... {END}")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
