"""Peak memory of each command above that of the plain pass, each in a process of its own."""

from __future__ import annotations

import resource
import subprocess
import sys

import torch

from attnviz.models.load import load_backbone
from attnviz.requests import ModelRequest
from benchmarks.forward import COMMANDS, command_work, plain_work, random_batch


def peak(name: str, side: int) -> float:
    """Peak resident bytes of a fresh process that runs one thing twice at a size."""
    command = [sys.executable, "-m", "benchmarks.memory", name, str(side)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return float(done.stdout)


def main() -> None:
    """Run what the arguments name, and print the peak resident bytes of this process."""
    name, side = sys.argv[1], int(sys.argv[2])
    model = load_backbone(ModelRequest(name="dino_vits8", random_weights=True, device="cpu"))
    batch = random_batch(side, torch.device("cpu"))
    work = (
        plain_work(model, batch) if name == "plain" else command_work(model, batch, COMMANDS[name])
    )
    for _ in range(2):
        work()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


if __name__ == "__main__":
    main()
