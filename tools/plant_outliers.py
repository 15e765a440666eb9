"""Write the demo model with planted outliers: patches of huge norm, as large ViTs grow them.

    python tools/plant_outliers.py planted.safetensors

The demo model is too small to have any, and the README shows what `attnviz registers` does about
them. Three MLP neurons of layer 2 are rewritten. Each looks for a direction of the layer's input in
which a few background patches of the demo scenes stand out, but not CLS and the objects, and writes
a long vector that CLS looks for in later layers. Nothing is trained, and the same weights come out
on every run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import attnviz
from attnviz.models.catalogue import MODELS, packaged_weights

ROOT = Path(__file__).parent.parent
SCENES = sorted((ROOT / "tests/data/demo_scenes").glob("scene_???.png"))
LAYER, NEURONS = 2, (17, 101, 333)
SHARE = 0.98
"""Share of the background patches below which a neuron stays off."""
HEIGHT, NORM = 30.0, 400.0
"""The activation of the strongest patch, about, and the length that it writes."""
TRIES = 3000
"""Random directions that a neuron's is the best of."""


def main(path: Path) -> None:
    """Write the weights."""
    model = attnviz.load_model("demo")
    inputs, background, queries = _inputs(model)
    centred = inputs[background] - inputs[background].mean(axis=0)
    whiten = np.linalg.inv(np.linalg.cholesky(np.cov(centred.T) + 0.05 * np.eye(centred.shape[1])))
    tensors = load_file(packaged_weights(MODELS["demo"]))
    writes = _attracting(model, queries)
    rng = np.random.default_rng(0)
    block = f"blocks.{LAYER}.mlp"
    scale = tensors.get(f"blocks.{LAYER}.ls2.gamma", torch.ones(len(writes)))
    for neuron in NEURONS:
        directions = rng.standard_normal((TRIES, inputs.shape[1])) @ whiten
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        along = inputs @ directions.T  # n, tries
        inside, outside = along[background], along[~background]
        starts, tops = np.quantile(inside, SHARE, axis=0), inside.max(axis=0)
        # CLS and the objects must stay off.
        best = int(np.argmin((outside.max(axis=0) - starts) / (tops - starts)))
        direction, start, top = directions[best], starts[best], tops[best]
        gain = HEIGHT / (top - start)
        tensors[f"{block}.fc1.weight"][neuron] = torch.from_numpy(gain * direction).float()
        tensors[f"{block}.fc1.bias"][neuron] = float(-gain * start - 1.0)
        column = torch.from_numpy(NORM / HEIGHT * writes).float() / scale
        tensors[f"{block}.fc2.weight"][:, neuron] = column
    save_file(tensors, path)


def _inputs(model: attnviz.Backbone) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Inputs (n, D) of the layer's MLP at all tokens of the scenes, and which are background.

    Also the queries (scenes, H, d) of CLS in every later layer.
    """
    found: list[np.ndarray] = []
    queries: list[list[np.ndarray]] = [[] for _ in model.blocks]
    background = []
    handles = [
        model.blocks[LAYER].mlp.fc1.register_forward_pre_hook(
            lambda _m, given: found.append(given[0][0].double().numpy())
        )
    ]
    for layer, each in enumerate(model.blocks):

        def keep(_m: object, _given: object, out: torch.Tensor, layer: int = layer) -> None:
            width = model.info.width
            query = out[0, 0, :width].reshape(model.info.heads, -1)
            queries[layer].append(query.double().numpy())

        handles.append(each.attn.qkv.register_forward_hook(keep))
    for scene in SCENES:
        prepared = attnviz.prepare(scene, model)
        with torch.inference_mode():
            model.run(model.batch([prepared]))
        mask = Image.open(scene.with_suffix(".mask.png")).convert("L")
        grid = prepared.geometry.grid
        inside = np.asarray(mask.resize((grid.width, grid.height), Image.Resampling.BOX)) > 0
        background.append(np.concatenate([[False], ~inside.ravel()]))  # CLS first
    for handle in handles:
        handle.remove()
    later = [np.stack(each) for each in queries]
    return np.concatenate(found), np.concatenate(background), later


def _attracting(model: attnviz.Backbone, queries: list[np.ndarray]) -> np.ndarray:
    """The direction (D,) whose keys the queries of CLS in later layers answer to most."""
    width, heads = model.info.width, model.info.heads
    total = np.zeros(width)
    for layer in range(LAYER + 1, model.info.depth):
        block = model.blocks[layer]
        weight = block.attn.qkv.weight.double().numpy()[width : 2 * width]  # keys
        weight = (weight * block.norm1.weight.double().numpy()).reshape(heads, -1, width)
        mean = queries[layer].mean(axis=0)  # H, d
        pulls = np.einsum("hd,hdw->hw", mean, weight)
        total += (pulls / np.linalg.norm(pulls, axis=1, keepdims=True)).sum(axis=0)
    total -= total.mean()  # the norm takes the mean out
    return total / np.linalg.norm(total)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
