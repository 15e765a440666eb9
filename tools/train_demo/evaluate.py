"""Judge how well attention draws an object: the number of the DINO paper's figure 4.

The CLS attention over the patches, renormalised to sum 1, is cut to the fewest highest
cells whose mass reaches 0.6; the cells are enlarged to pixels (nearest) and compared with the
object's mask by the Jaccard index.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from banks import HELD_OUT_TEXTURES, load_banks
from model import build_vit, class_attention, class_logits, load_weights
from PIL import Image
from scenes import judged_scenes, normalise

if TYPE_CHECKING:
    from timm.models.vision_transformer import VisionTransformer

MASS = 0.6


@dataclass(frozen=True)
class Scores:
    """What one model reaches, averaged over scenes. Jaccard indices in 0..1.

    heads: each head on its own (H,). best_fixed_head: the highest of them.
    best_head_per_image: the highest head of each scene. mean_map: the mean over heads.
    peak_on_object: how often the highest cell of the mean map is a cell that the object covers
    by half or more of its pixels. peak_touches_object: the same with at least one pixel.
    """

    heads: tuple[float, ...]
    best_head_per_image: float
    mean_map: float
    peak_on_object: float
    peak_touches_object: float

    @property
    def best_fixed_head(self) -> float:
        """The head that does best when one is chosen for all scenes."""
        return max(self.heads)


def mass_mask(attention: np.ndarray, mass: float = MASS) -> np.ndarray:
    """The fewest highest cells of each map (..., gh, gw) whose share reaches ``mass``: bool."""
    flat = attention.reshape(*attention.shape[:-2], -1).astype(np.float64)
    flat = flat / flat.sum(axis=-1, keepdims=True)
    order = np.argsort(-flat, axis=-1, kind="stable")
    ranked = np.take_along_axis(flat, order, axis=-1)
    before = np.cumsum(ranked, axis=-1) - ranked  # mass of all higher cells
    kept = np.zeros(flat.shape, bool)
    np.put_along_axis(kept, order, before < mass, axis=-1)
    return kept.reshape(attention.shape)


def enlarge(cells: np.ndarray, patch: int) -> np.ndarray:
    """Repeat each cell of (..., gh, gw) to its patch of pixels."""
    return cells.repeat(patch, axis=-2).repeat(patch, axis=-1)


def jaccard(kept: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Intersection over union of pixel masks (..., h, w) bool: (...) float64."""
    return (kept & masks).sum(axis=(-2, -1)) / (kept | masks).sum(axis=(-2, -1))


def score_maps(attention: np.ndarray, masks: np.ndarray) -> Scores:
    """Compare maps (B, H, gh, gw) with object masks (B, h, w) bool."""
    batch, _, rows, columns = attention.shape
    patch = masks.shape[1] // rows
    per_head = jaccard(enlarge(mass_mask(attention), patch), masks[:, None])  # (B, H)
    mean = attention.mean(axis=1)  # (B, gh, gw)
    per_mean = jaccard(enlarge(mass_mask(mean), patch), masks)  # (B,)
    cover = masks.reshape(batch, rows, patch, columns, patch).mean(axis=(2, 4))
    at_peak = cover.reshape(batch, -1)[np.arange(batch), mean.reshape(batch, -1).argmax(axis=1)]
    return Scores(
        heads=tuple(per_head.mean(axis=0).tolist()),
        best_head_per_image=float(per_head.max(axis=1).mean()),
        mean_map=float(per_mean.mean()),
        peak_on_object=float((at_peak >= 0.5).mean()),
        peak_touches_object=float((at_peak > 0).mean()),
    )


def logits_of(model: VisionTransformer, images: np.ndarray) -> torch.Tensor:
    """The attention logits of the CLS token (B, H, N) for scenes (B, h, w, 3) uint8."""
    batch = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    return torch.cat([class_logits(model, normalise(part)) for part in batch.split(50)])


def judge(model: VisionTransformer, images: np.ndarray, masks: np.ndarray) -> Scores:
    """Score a model on scenes: images (B, h, w, 3) uint8, masks (B, h, w) bool."""
    attention = class_attention(logits_of(model, images), images.shape[1])
    return score_maps(attention.numpy(), masks)


def summary(scores: Scores) -> str:
    """One line for a log."""
    heads = " ".join(f"{head:.3f}" for head in scores.heads)
    return (
        f"mean map {scores.mean_map:.3f}  heads {heads}  best an image "
        f"{scores.best_head_per_image:.3f}  peak {scores.peak_on_object:.3f}"
    )


def read_scenes(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read ``NAME.png`` and ``NAME.mask.png`` pairs of one size, sorted by name."""
    names = sorted(f for f in folder.glob("*.png") if not f.name.endswith(".mask.png"))
    images = [np.asarray(Image.open(f).convert("RGB")) for f in names]
    masks = [np.asarray(Image.open(f.with_suffix(".mask.png")).convert("L")) > 127 for f in names]
    return np.stack(images), np.stack(masks)


def table(columns: dict[str, Scores]) -> str:
    """The scores of several models as a Markdown table, one column a model."""
    rows = {
        "mean map": [f"{s.mean_map:.3f}" for s in columns.values()],
        "best fixed head": [f"{s.best_fixed_head:.3f}" for s in columns.values()],
        "best head per image": [f"{s.best_head_per_image:.3f}" for s in columns.values()],
        "highest cell on the object": [f"{s.peak_on_object:.1%}" for s in columns.values()],
        "highest cell touches the object": [
            f"{s.peak_touches_object:.1%}" for s in columns.values()
        ],
    }
    head = f"| | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}\n"
    return head + "\n".join(f"| {name} | {' | '.join(row)} |" for name, row in rows.items())


def main() -> None:
    """Print the table for an untrained model and for each NAME=FILE."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", nargs="*", metavar="NAME=FILE", help="safetensors to judge")
    parser.add_argument("--scenes", type=Path, help="folder of scenes; default: 200 fresh ones")
    parser.add_argument("--cache", type=Path, help="folder for rendered banks")
    options = parser.parse_args()
    torch.set_num_threads(2)
    if options.scenes is None:
        banks = load_banks(held_out=True, textures=HELD_OUT_TEXTURES, cache=options.cache)
        images, masks = judged_scenes(banks, count=200, side=96, seed=7)
    else:
        images, masks = read_scenes(options.scenes)
    torch.manual_seed(0)
    columns = {"untrained": judge(build_vit().eval(), images, masks)}
    for entry in options.weights:
        name, _, file = entry.partition("=")
        columns[name] = judge(load_weights(Path(file)), images, masks)
    print(table(columns))


if __name__ == "__main__":
    main()
