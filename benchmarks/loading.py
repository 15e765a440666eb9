"""How long a process of the command line takes, from its start to its end.

``attnviz heads`` on one image against a process that imports timm, builds and runs the model, both
with the same weights file; the help against that of an empty program.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from attnviz.domain.requests import ModelRequest
from attnviz.models.load import load_backbone
from benchmarks.report import Plan
from benchmarks.timing import Work, interleaved, ratios

PLAIN = """
import sys, timm, torch
model = timm.create_model("vit_small_patch8_224.dino", num_classes=0, dynamic_img_size=True).eval()
model.load_state_dict(torch.load(sys.argv[1], weights_only=True))
with torch.inference_mode():
    for _ in range(int(sys.argv[3])):
        model(torch.zeros(1, 3, 224, int(sys.argv[2])))
"""
"""Start-up and forward passes and nothing else: weights file, width of the input, how many."""


HELP = """
import typer
app = typer.Typer()

@app.command()
def one() -> None:
    'The first.'

@app.command()
def two() -> None:
    'The second.'

app()
"""
"""The help of a Typer program of two empty commands: what no program that uses Typer is below."""


@dataclass(frozen=True)
class Times:
    """Of one thing against another in turn, whole processes.

    ``seconds``: median of the other; ``ratio``: median ratio to it; ``cpu_ratio``: the same of CPU
    time, which other work on the machine changes less.
    """

    seconds: float
    ratio: float
    cpu_ratio: float


def measure_heads(image: Path, rounds: int) -> Times:
    """``heads`` of one image against the plain process."""
    with tempfile.TemporaryDirectory() as folder:
        weights = save_weights(Path(folder))
        return compared(
            process("-c", PLAIN, weights, 336, 1),
            heads_process(image, weights, Path(folder)),
            rounds,
        )


def measure_help(rounds: int, *command: str) -> Times:
    """``attnviz --help``, or that of a command, against the help of an empty program."""
    ours = process("-m", "attnviz", *command, "--help")
    return compared(process("-c", HELP, "--help"), ours, rounds)


def compared(plain: Work, own: Work, rounds: int) -> Times:
    """Two pieces of work that start processes, run in turn."""
    cpu: dict[str, list[float]] = {"plain": [], "own": []}

    def metered(name: str, work: Work) -> Work:
        def run() -> None:
            before = children_cpu_seconds()
            work()
            cpu[name].append(children_cpu_seconds() - before)

        return run

    works = {"plain": metered("plain", plain), "own": metered("own", own)}
    seconds = interleaved(works, rounds)
    cpu_ratios = ratios({name: times[1:] for name, times in cpu.items()}, "plain")
    return Times(
        statistics.median(seconds["plain"]), ratios(seconds, "plain")["own"], cpu_ratios["own"]
    )


def children_cpu_seconds() -> float:
    """CPU time of all processes that this one has started and waited for."""
    times = os.times()
    return times.children_user + times.children_system


def save_weights(folder: Path) -> Path:
    """A file of random weights for ViT-S/8."""
    path = folder / "dino_vits8.pth"
    model = load_backbone(ModelRequest(name="dino_vits8", random_weights=True, device="cpu"))
    torch.save(model.module.state_dict(), path)
    return path


def heads_process(pictures: Path, weights: Path, out: Path) -> Work:
    """The command line as a process of its own."""
    return process(
        "-m", "attnviz", "heads", pictures, "--model", "dino_vits8", "--checkpoint", weights,
        "--out", out, "--quiet", "--device", "cpu",
    )  # fmt: skip


def process(*arguments: object) -> Work:
    """A Python process with these arguments, from start to end."""
    command = [sys.executable, *map(str, arguments)]
    return lambda: subprocess.run(command, check=True, capture_output=True)  # noqa: S603


def report(plan: Plan) -> str:
    """A sentence on each."""
    heads = measure_heads(plan.image, 1 if plan.quick else 5)
    helps = [measure_help(3 if plan.quick else 9, *command) for command in ((), ("heads",))]
    return (
        f"The command `heads` on one image, whole process: {heads.ratio:.2f} times a process that "
        "imports timm, builds the same model, loads the same file and runs it "
        f"({heads.seconds:.1f} s), {heads.cpu_ratio:.2f} times its CPU time without the process "
        f"that draws. `attnviz --help`: {helps[0].ratio:.2f} times the help of a Typer program of "
        f"two empty commands ({helps[0].seconds:.2f} s), {helps[0].cpu_ratio:.2f} times its CPU "
        f"time; `attnviz heads --help`: {helps[1].ratio:.2f} and {helps[1].cpu_ratio:.2f} times."
    )
