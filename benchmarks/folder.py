"""``attnviz heads`` over a folder of photographs, against start-up and as many plain passes.

Each is a whole process, and the two run in turn. Ours also decodes, computes the maps with
distances, draws and writes a figure for every photograph.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from PIL import Image

from benchmarks.loading import PLAIN, heads_process, process, save_weights
from benchmarks.report import Plan
from benchmarks.timing import interleaved, ratios

SIZE = (640, 480)
INPUT_WIDTH = 296
"""Of the model input that a photograph of that size becomes, at the native 224 pixels."""


def measure(pictures: Path, count: int, rounds: int) -> tuple[float, float]:
    """Median seconds of the plain process, and the ratio of ours to it.

    pictures: a folder of photographs, which are cut until there are ``count``.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(pictures, folder / "in", count)
        weights = save_weights(folder)
        works = {
            "plain": process("-c", PLAIN, weights, INPUT_WIDTH, count),
            "heads": heads_process(folder / "in", weights, folder / "out"),
        }
        seconds = interleaved(works, rounds, warm_up=False)
    return statistics.median(seconds["plain"]), ratios(seconds, "plain")["heads"]


def photographs(source: Path, folder: Path, count: int) -> None:
    """``count`` JPEG files of 640 x 480 pixels, no two alike."""
    folder.mkdir()
    files = sorted(source.glob("*.jpg"))
    for number in range(count):
        with Image.open(files[number % len(files)]) as image:
            shift = number // len(files)
            part = image.convert("RGB").crop((shift, shift, image.width, image.height))
        part.resize(SIZE).save(folder / f"{number}.jpg", quality=90)


def report(plan: Plan) -> str:
    """One sentence."""
    count, rounds = (20, 1) if plan.quick else (80, 2)
    seconds, ratio = measure(plan.image.parent, count, rounds)
    return (
        f"The command `heads` on a folder of {count} photographs of 640 x 480, whole process: "
        f"{ratio:.2f} times start-up and as many plain passes ({seconds:.0f} s; {rounds} rounds)."
    )
