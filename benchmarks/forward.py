"""Time of each command's maps relative to timm's plain forward pass: same model, input and process.

For comparison, what other code does. ``get_last_selfattention`` is DINO's way, without a fused
kernel up to the last layer's matrix; ``hooks`` keep the unfused matrices of all layers;
``vit-explain style`` is rollout by N x N products with torch.topk on them; ``transformers eager``
is output_attentions=True of the same architecture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from attnviz.attention.compute import compute
from attnviz.attention.memory import free_bytes
from attnviz.domain import Box, DiscoverMethod, FitGeometry, RolloutOptions, Size
from attnviz.domain.kinds import (
    CommandRequest,
    DiscoverRequest,
    HeadsRequest,
    LayersRequest,
    PatchRequest,
    RolloutRequest,
    ScoreRequest,
)
from attnviz.domain.requests import ModelRequest
from attnviz.models.backbone import Backbone
from attnviz.models.load import load_backbone
from benchmarks.report import Plan, table
from benchmarks.timing import Work, interleaved, ratios

COMMANDS: dict[str, CommandRequest] = {
    "heads": HeadsRequest(distance=False),
    "heads with distances": HeadsRequest(),
    "layers": LayersRequest(distance=False),
    "layers with distances": LayersRequest(),
    "patch": PatchRequest(),
    "rollout, no discard": RolloutRequest(options=RolloutOptions(discard_ratio=0)),
    "rollout, discard 0.9": RolloutRequest(),
    "score": ScoreRequest(),
    "discover, LOST": DiscoverRequest(DiscoverMethod.LOST),
    "discover, TokenCut": DiscoverRequest(DiscoverMethod.TOKENCUT),
    "discover, spectral": DiscoverRequest(DiscoverMethod.SPECTRAL),
}


AGAIN = "plain forward pass, again"
"""The same work a second time in each round: what its ratio differs from 1 by is noise."""


def random_batch(side: int, device: torch.device, count: int = 1) -> torch.Tensor:
    """Noise of a fixed seed: (count, 3, side, side)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 3, side, side, generator=generator).to(device)


def geometry_of(side: int, patch: int) -> FitGeometry:
    """A square image that is its own model input."""
    size = Size(side, side)
    return FitGeometry(size, size, patch, Box(0, 0, side, side))


def command_work(model: Backbone, batch: torch.Tensor, command: CommandRequest) -> Work:
    """One command's maps of a batch, as the pipeline computes them."""
    geometries = [geometry_of(batch.shape[-1], model.info.patch)] * batch.shape[0]
    return lambda: compute(model, batch, geometries, command)


def plain_work(model: Backbone, batch: torch.Tensor) -> Work:
    """The plain forward pass with fused attention."""

    def work() -> None:
        with torch.inference_mode():
            model.run(batch)
        if batch.is_cuda:
            torch.cuda.synchronize()

    return work


def last_matrix(model: Backbone, batch: torch.Tensor) -> torch.Tensor:
    """The last layer's matrix with unfused attention everywhere; nothing runs after it."""
    matrices: list[torch.Tensor] = []

    class Stop(Exception):  # noqa: N818 - a signal, not an error
        pass

    def stop(_module: object, _inputs: object, out: torch.Tensor) -> None:
        matrices.append(out)
        raise Stop

    with unfused(model), torch.inference_mode():
        attention: Any = model.blocks[-1].attn
        handle = attention.attn_drop.register_forward_hook(stop)
        try:
            model.run(batch)
        except Stop:
            pass
        finally:
            handle.remove()
    return matrices[0]


def all_matrices(model: Backbone, batch: torch.Tensor) -> list[torch.Tensor]:
    """The matrices of all layers by hooks on unfused attention, as most scripts do it."""
    matrices: list[torch.Tensor] = []
    modules: list[Any] = [block.attn for block in model.blocks]
    handles = [
        module.attn_drop.register_forward_hook(lambda _m, _i, out: matrices.append(out))
        for module in modules
    ]
    try:
        with unfused(model), torch.inference_mode():
            model.run(batch)
    finally:
        for handle in handles:
            handle.remove()
    return matrices


@contextmanager
def unfused(model: Backbone) -> Iterator[None]:
    """Switch fused attention off for a while."""
    modules: list[Any] = [block.attn for block in model.blocks]
    for module in modules:
        module.fused_attn = False
    try:
        yield
    finally:
        for module in modules:
            module.fused_attn = True


def product_rollout(model: Backbone, batch: torch.Tensor) -> torch.Tensor:
    """Rollout in the style of vit-explain: every matrix held, topk on it, N x N products."""
    result = torch.eye(all_tokens(model, batch))
    with torch.inference_mode():
        for attention in all_matrices(model, batch):
            fused = attention.mean(dim=1)
            flat = fused.view(fused.shape[0], -1)
            _, lowest = flat.topk(int(flat.shape[-1] * 0.9), dim=-1, largest=False)
            flat[0, lowest[0][lowest[0] != 0]] = 0
            mixed = (fused + torch.eye(fused.shape[-1])) / 2
            result = (mixed / mixed.sum(dim=-1, keepdim=True)) @ result
    return result


def all_tokens(model: Backbone, batch: torch.Tensor) -> int:
    """N of a batch."""
    return model.info.prefix + (batch.shape[-1] // model.info.patch) ** 2


def eager_work(side: int) -> Callable[[], object]:
    """A transformers ViT-S/8 in eager mode with output_attentions=True, random weights."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=384, num_attention_heads=6, intermediate_size=1536, patch_size=8,
        image_size=224, attn_implementation="eager",
    )  # fmt: skip
    network = ViTModel(config, add_pooling_layer=False).eval()
    pixels = random_batch(side, torch.device("cpu"))

    def work() -> object:
        with torch.inference_mode():
            return network(pixels, output_attentions=True, interpolate_pos_encoding=True)

    return work


def measure(side: int, rounds: int) -> tuple[float, dict[str, float]]:
    """Median seconds of the plain pass at a size, and our ratios to it (ViT-S/8, batch 1)."""
    model = load_backbone(ModelRequest(name="dino_vits8", random_weights=True, device="cpu"))
    batch = random_batch(side, model.device)
    works: dict[str, Work] = {"plain": plain_work(model, batch), AGAIN: plain_work(model, batch)}
    works |= {name: command_work(model, batch, command) for name, command in COMMANDS.items()}
    seconds = interleaved(works, rounds)
    return float(np.median(seconds["plain"])), ratios(seconds, "plain")


def measure_others(side: int) -> dict[str, float]:
    """Ratios to the plain pass of other code; what does not fit into memory is left out.

    At large sizes each runs once without warming up, which takes half a minute.
    """
    model = load_backbone(ModelRequest(name="dino_vits8", random_weights=True, device="cpu"))
    batch = random_batch(side, model.device)
    works: dict[str, Work] = {
        "plain": plain_work(model, batch),
        "DINO's `get_last_selfattention`": lambda: last_matrix(model, batch),
        "hooks on unfused attention, all layers": lambda: all_matrices(model, batch),
        "transformers, eager `output_attentions`": eager_work(side),
        "rollout in the style of vit-explain": lambda: product_rollout(model, batch),
    }
    matrices = 4 * model.info.depth * model.info.heads * all_tokens(model, batch) ** 2
    if matrices * 1.5 > (free_bytes(model.device) or math.inf):
        works = dict(list(works.items())[:2])
    brief = side > 256
    return ratios(interleaved(works, 1 if brief else 3, warm_up=not brief), "plain")


def report(plan: Plan) -> str:
    """The table of times."""
    ours = {side: measure(side, plan.rounds(side)) for side in plan.sides}
    rows = {"plain forward pass": [f"{ours[side][0]:.2f} s" for side in plan.sides]}
    names = (AGAIN, *COMMANDS)
    rows |= {name: [f"{ours[side][1][name]:.2f}" for side in plan.sides] for name in names}
    if not plan.quick:
        others = {side: measure_others(side) for side in plan.sides}
        others_names = dict.fromkeys(name for result in others.values() for name in result)
        rows |= {
            name: [
                f"{others[side][name]:.2f}" if name in others[side] else "no memory"
                for side in plan.sides
            ]
            for name in others_names
            if name != "plain"
        }
    return table("time / plain", [f"{side} px" for side in plan.sides], rows)
