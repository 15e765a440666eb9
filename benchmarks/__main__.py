"""``python -m benchmarks``: measure everything in one run and print it as Markdown."""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch

from attnviz.domain.process import available_cores
from benchmarks import drawing, folder, forward, loading, memory
from benchmarks.report import Plan, load, write_between_markers

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "sample_images" / "cat.jpg"
PAGE = ROOT / "docs" / "performance.md"

PARTS: dict[str, Callable[[Plan], str]] = {
    "forward": forward.report,
    "memory": memory.report,
    "loading": loading.report,
    "folder": folder.report,
    "drawing": drawing.report,
}
"""What is measured, in this order; each returns Markdown."""


def main() -> None:
    """Print the tables; every number in them is from this run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="which, by name (default all)")
    parser.add_argument("--sizes", default="224,480", help="input sides in pixels")
    parser.add_argument("--quick", action="store_true", help="few rounds, only attnviz itself")
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE.name} as well")
    arguments = parser.parse_args()
    names = arguments.parts.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    sides = tuple(int(side) for side in arguments.sizes.split(","))
    plan = Plan(sides, PICTURE, arguments.quick)
    start, before = time.monotonic(), load()
    texts = []
    for name in names:
        texts.append(PARTS[name](plan))
        print(texts[-1], flush=True)
        print()
    texts.insert(0, _machine(before, time.monotonic() - start))
    print(texts[0])
    if arguments.write:
        write_between_markers(PAGE, "\n\n".join(texts))


def _machine(load_before: str, seconds: float) -> str:
    return (
        f"{available_cores()} cores ({platform.machine()}), {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}; load {load_before} before, {load()} after; {seconds / 60:.0f} "
        "minutes. ViT-S/8 with random weights, batch 1, float32."
    )


if __name__ == "__main__":
    main()
