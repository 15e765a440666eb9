"""``python -m benchmarks``: measure everything in one run and print it as Markdown."""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path

import torch

from benchmarks import drawing, folder, forward, loading, memory

PICTURE = Path(__file__).parent.parent / "sample_images" / "cat.jpg"
MEMORY_ROWS = ("heads", "rollout, no discard", "rollout, discard 0.9")


def main() -> None:
    """Print the tables; every number in them is from this run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds of each (default 9)")
    parser.add_argument("--sizes", default="224,480", help="input sides in pixels")
    parser.add_argument("--photographs", type=int, default=200, help="of the folder (default 200)")
    arguments = parser.parse_args()
    sides = [int(side) for side in arguments.sizes.split(",")]
    print(
        f"{os.cpu_count()} cores ({platform.machine()}), torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads; ViT-S/8, batch 1, float32; medians of "
        f"{arguments.rounds} interleaved rounds\n"
    )
    measured = {side: forward.measure(side, arguments.rounds) for side in sides}
    names = list(measured[sides[0]][1])
    print("| time / plain | " + " | ".join(f"{side} px" for side in sides) + " |")
    print("| --- |" + " ---: |" * len(sides))
    for name in names:
        cells = [
            f"{measured[side][0]:.2f} s" if name == "plain" else f"{measured[side][1][name]:.2f}"
            for side in sides
        ]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print("\n| peak memory above plain | " + " | ".join(f"{side} px" for side in sides) + " |")
    print("| --- |" + " ---: |" * len(sides))
    plain = {side: memory.peak("plain", side) for side in sides}
    for name in MEMORY_ROWS:
        more = [memory.peak(name, side) - plain[side] for side in sides]
        cells = [
            f"{extra / 1e6:+.0f} MB ({100 * extra / plain[side]:+.0f} %)"
            for extra, side in zip(more, sides, strict=True)
        ]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    seconds, ratio = loading.measure(PICTURE, max(3, arguments.rounds // 2))
    print(
        f"\nOne picture, whole process: {ratio:.2f} times a plain timm process ({seconds:.1f} s)."
    )
    seconds, ratio = folder.measure(PICTURE.parent, arguments.photographs, 2)
    print(
        f"A folder of {arguments.photographs} photographs, whole process: {ratio:.2f} times "
        f"start-up and as many plain passes ({seconds:.0f} s; 2 rounds)."
    )
    print(f"One heads figure, drawn and written: {drawing.measure(PICTURE, 9):.2f} s.")


if __name__ == "__main__":
    main()
