"""``attnviz heads`` on one picture against a process that imports timm, builds and runs the model.

Both read the same weights file, so both pay for what a user pays for.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
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


def measure(picture: Path, rounds: int) -> tuple[float, float]:
    """Median seconds of the plain process, and the ratio of ours to it."""
    with tempfile.TemporaryDirectory() as folder:
        weights = save_weights(Path(folder))
        works = {
            "plain": process("-c", PLAIN, weights, 336, 1),
            "heads": heads_process(picture, weights, Path(folder)),
        }
        seconds = interleaved(works, rounds)
    return sorted(seconds["plain"])[rounds // 2], ratios(seconds, "plain")["heads"]


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
    """One sentence."""
    seconds, ratio = measure(plan.picture, 1 if plan.quick else 3)
    return (
        f"The command `heads` on one picture, whole process: {ratio:.2f} times a process that "
        "imports timm, builds the same model, loads the same file and runs it "
        f"({seconds:.1f} s)."
    )
