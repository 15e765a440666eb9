"""Seconds to draw and write one ``heads`` figure (8 panels, 150 dpi, PNG) in a warm process."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from attnviz import api
from attnviz.domain import DrawStyle, ImageFormat, Provenance
from attnviz.domain.kinds import HeadsRequest
from attnviz.domain.requests import OutputRequest
from attnviz.output.plan import OutputPlan
from attnviz.stages.draw import RenderJob, render
from benchmarks.report import Plan


def measure(picture: Path, rounds: int) -> float:
    """Median seconds of a figure after the first."""
    model = api.load_model("dino_vits8", random_weights=True)
    image = api.prepare(picture, model)
    command = HeadsRequest()
    maps = api.compute_maps(model, [image], command)[0]
    with tempfile.TemporaryDirectory() as folder:
        job = RenderJob(
            maps=maps,
            pixels=image.image.pixels,
            provenance=Provenance(
                "heads", model.info, str(picture), image.image.sha256, image.geometry
            ),
            style=replace(DrawStyle(), dpi=150),
            command=command,
            output=OutputRequest(Path(folder), (ImageFormat.PNG,)),
            plan=OutputPlan(Path(folder), "picture", "heads"),
        )
        seconds = []
        for turn in range(rounds + 1):
            start = time.perf_counter()
            render(job)
            if turn:
                seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def report(plan: Plan) -> str:
    """One sentence."""
    seconds = measure(plan.image, 3 if plan.quick else 9)
    return (
        f"One `heads` figure (8 panels), drawn and written as PNG at 150 dpi in a warm process: "
        f"{seconds:.2f} s."
    )
