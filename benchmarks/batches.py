"""Time of every kind of maps by batch size and number type, on a GPU or the CPU.

``python -m benchmarks --device cuda --batch 1,16,64 --precision float32,bfloat16``. Each is set
against the plain forward pass of the same batch, in the same number type and process.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import numpy as np
import torch

from attnviz.attention.compute import compute
from attnviz.domain import Maps, Precision, RolloutOptions
from attnviz.domain.kinds import (
    CommandRequest,
    FeaturesRequest,
    LayersRequest,
    MatrixRequest,
    QkvRequest,
    RolloutRequest,
    ScoreRequest,
)
from attnviz.domain.requests import ModelRequest
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from benchmarks.forward import COMMANDS, command_work, geometry_of, plain_work, random_batch
from benchmarks.report import Plan, table
from benchmarks.timing import Work, interleaved, ratios

REQUESTS: dict[str, CommandRequest] = {
    **COMMANDS,
    "features": FeaturesRequest(),
    "matrix": MatrixRequest(),
    "qkv": QkvRequest(),
}

COMPARED: dict[str, tuple[CommandRequest, str]] = {
    "layers": (LayersRequest(distance=False), "attention"),
    "rollout, no discard": (RolloutRequest(options=RolloutOptions(discard_ratio=0)), "rollout"),
    "score": (ScoreRequest(), "score"),
}
"""Maps of half precision that are compared with those of float32, and the array."""


def report(plan: Plan) -> str:
    """Tables of times for every size, and how far half precision deviates."""
    texts = []
    for side in plan.sides:
        columns = dict(_columns(plan, side))
        rows = {
            name: [cells.get(name, "no memory") for cells in columns.values()]
            for name in ("plain forward pass", *REQUESTS)
        }
        texts.append(table(f"time / plain at {side} px", list(columns), rows))
    texts += [_deviations(plan, precision) for precision in plan.precisions[1:]]
    return "\n\n".join(texts)


def _columns(plan: Plan, side: int) -> Iterator[tuple[str, dict[str, str]]]:
    """A column for every number type and batch size: its cells by row."""
    for precision in plan.precisions:
        model = _model(plan, precision)
        for count in plan.batches:
            try:
                yield f"{precision}, {count}", _measure(model, side, count, plan.rounds(side))
            except torch.OutOfMemoryError:
                yield f"{precision}, {count}", {}


def _measure(model: Backbone, side: int, count: int, rounds: int) -> dict[str, str]:
    batch = random_batch(side, model.device, count)
    works: dict[str, Work] = {"plain": plain_work(model, batch)}
    works |= {name: command_work(model, batch, request) for name, request in REQUESTS.items()}
    seconds = interleaved(works, rounds)
    cells = {name: f"{ratio:.2f}" for name, ratio in ratios(seconds, "plain").items()}
    each = 1000 * statistics.median(seconds["plain"]) / count
    return cells | {"plain forward pass": f"{each:.1f} ms/image"}


def _deviations(plan: Plan, precision: str) -> str:
    """One sentence: the largest deviation from the first number type, relative to the maximum."""
    exact, other = _model(plan, plan.precisions[0]), _model(plan, precision)
    parts = []
    for name, (request, array) in COMPARED.items():
        pair = [getattr(_maps(model, plan.sides[0], request), array) for model in (exact, other)]
        deviation = np.abs(pair[0] - pair[1]).max() / np.abs(pair[0]).max()
        parts.append(f"{name} {deviation:.4f}")
    return (
        f"Largest deviation of {precision} maps from {plan.precisions[0]}, relative to the "
        f"maximum: {', '.join(parts)}."
    )


def _maps(model: Backbone, side: int, request: CommandRequest) -> Maps:
    batch = random_batch(side, model.device)
    return compute(model, batch, [geometry_of(side, model.info.patch)], request)[0]


def _model(plan: Plan, precision: str) -> Backbone:
    return load_backbone(
        ModelRequest(
            name="dino_vits8",
            random_weights=True,
            device=plan.device,
            precision=Precision(precision),
        )
    )
