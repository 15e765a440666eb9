"""``python -m benchmarks``: measure everything in one run and print it as Markdown."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import batches, drawing, folder, forward, loading, memory
from benchmarks.machine import describe
from benchmarks.report import BATCHES, MAIN, Plan, load, write_block

ROOT = Path(__file__).parent.parent
IMAGE = ROOT / "sample_images" / "cat.jpg"
PAGE = ROOT / "docs" / "performance.md"

PARTS: dict[str, Callable[[Plan], str]] = {
    "forward": forward.report,
    "memory": memory.report,
    "loading": loading.report,
    "folder": folder.report,
    "drawing": drawing.report,
}
"""What is measured by default, in this order; each returns Markdown."""

DEVICE_PARTS = {"batches": batches.report}
"""What is measured with --device, --batch or --precision, and written to a block of its own."""


def main() -> None:
    """Print the tables; every number in them is from this run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--parts", help=f"by name: {', '.join(PARTS)} (default all)")
    parser.add_argument(
        "--sizes", help="input sides in pixels (default 224,480; with --device 224)"
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, only attnviz itself")
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE.name} as well")
    parser.add_argument("--device", help="cpu, cuda or cuda:1: measure batches there instead")
    parser.add_argument("--batch", help="batch sizes to measure (default 1,16,64)")
    parser.add_argument("--precision", help="number types (default float32,bfloat16)")
    arguments = parser.parse_args()
    on_device = bool(arguments.device or arguments.batch or arguments.precision)
    parts = DEVICE_PARTS if on_device else PARTS
    names = arguments.parts.split(",") if arguments.parts else list(parts)
    unknown = [name for name in names if name not in parts]
    if unknown:
        parser.error(f"no part {unknown[0]!r} here; the parts are {', '.join(parts)}")
    plan = Plan(
        _numbers(arguments.sizes or ("224" if on_device else "224,480")),
        IMAGE,
        arguments.quick,
        arguments.device or "cpu",
        _numbers(arguments.batch or "1,16,64"),
        tuple((arguments.precision or "float32,bfloat16").split(",")),
    )
    start, before = time.monotonic(), load()
    texts = []
    for name in names:
        texts.append(parts[name](plan))
        print(texts[-1], flush=True)
        print()
    texts.insert(0, _machine(plan, before, time.monotonic() - start, on_device=on_device))
    print(texts[0])
    if arguments.write:
        write_block(PAGE, BATCHES if on_device else MAIN, "\n\n".join(texts))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _machine(plan: Plan, load_before: str, seconds: float, *, on_device: bool) -> str:
    what = "" if on_device else ", batch 1, float32"
    return (
        f"{describe(torch.device(plan.device))}, torch {torch.__version__}; load {load_before} "
        f"before, {load()} after; {max(1, round(seconds / 60))} minutes. ViT-S/8 with random "
        f"weights{what}."
    )


if __name__ == "__main__":
    main()
