"""Peak memory of each command above that of the plain pass, each in a process of its own.

At 1024 pixels (16,385 tokens) no N x N matrix is kept: rollout runs there once, on its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import torch

from attnviz.domain.requests import ModelRequest
from attnviz.models.load import load_backbone
from benchmarks.forward import COMMANDS, command_work, plain_work, random_batch
from benchmarks.report import Plan, table

ROWS = ("heads", "rollout, no discard", "rollout, discard 0.9")
LARGE = 1024


def peak(name: str, side: int, runs: int = 2) -> tuple[float, float]:
    """Peak resident bytes of a fresh process running one thing, and the last run's seconds."""
    command = [sys.executable, "-m", "benchmarks.memory", name, str(side), str(runs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    size, seconds = done.stdout.split()
    return float(size), float(seconds)


def report(plan: Plan) -> str:
    """The table, and what rollout needs of a large picture."""
    plain = {side: peak("plain", side)[0] for side in plan.sides}
    rows = {}
    for name in ROWS:
        more = [peak(name, side)[0] - plain[side] for side in plan.sides]
        rows[name] = [
            f"{extra / 1e6:+.0f} MB ({100 * extra / plain[side]:+.0f} %)"
            for extra, side in zip(more, plan.sides, strict=True)
        ]
    text = table("peak memory above plain", [f"{side} px" for side in plan.sides], rows)
    if plan.quick:
        return text
    lines = [
        f"- {name}: {size / 1e9:.1f} GB at its peak, {seconds:.0f} s"
        for name in ROWS[1:]
        for size, seconds in [peak(name, LARGE, runs=1)]
    ]
    tokens = (LARGE // 8) ** 2 + 1
    return f"{text}\n\nAt {LARGE} px ({tokens:,} tokens), whole process, one run:\n" + "\n".join(
        lines
    )


def main() -> None:
    """Run what the arguments name; print peak resident bytes and the last run's seconds."""
    name, side = sys.argv[1], int(sys.argv[2])
    model = load_backbone(ModelRequest(name="dino_vits8", random_weights=True, device="cpu"))
    batch = random_batch(side, torch.device("cpu"))
    work = (
        plain_work(model, batch) if name == "plain" else command_work(model, batch, COMMANDS[name])
    )
    seconds = 0.0
    for _ in range(int(sys.argv[3])):
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
    print(peak_bytes(), seconds)


def peak_bytes() -> float:
    """Peak resident bytes of this program.

    Not of getrusage, whose peak a process inherits from the one that started it.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


if __name__ == "__main__":
    main()
