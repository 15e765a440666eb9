"""The demo weights draw what their card says, measured without the package's own code.

The scenes are committed beside their masks. Nothing of ``tools/`` or of the package's loader is
used: the model is timm's plain ViT, attention and score are written out again below.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from timm.models.vision_transformer import VisionTransformer

ROOT = Path(__file__).parents[2]
DATA = ROOT / "attnviz" / "data"
WEIGHTS = DATA / "demo.safetensors"
SCENES = ROOT / "tests" / "data" / "demo_scenes"
CARD_SECTION = "The 25 committed scenes"
TOLERANCE = 0.01
"""A cell at the edge of a mask may fall to the other side on another processor."""


def build() -> VisionTransformer:
    return VisionTransformer(
        img_size=96, patch_size=8, embed_dim=128, depth=6, num_heads=4, num_classes=0,
        class_token=True, qkv_bias=True, dynamic_img_size=True,
    ).eval()  # fmt: skip


def shipped() -> VisionTransformer:
    model = build()
    with safe_open(WEIGHTS, "pt") as file:
        tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    model.load_state_dict(tensors, strict=True)
    return model


def scenes() -> tuple[np.ndarray, np.ndarray]:
    pictures = sorted(SCENES.glob("scene_???.png"))
    images = [np.asarray(Image.open(file).convert("RGB")) for file in pictures]
    masks = [np.asarray(Image.open(file.with_suffix(".mask.png"))) > 0 for file in pictures]
    return np.stack(images), np.stack(masks)


@torch.no_grad()
def class_rows(model: VisionTransformer, images: np.ndarray) -> np.ndarray:
    """The CLS token's row of the last block, patch part: (B, H, gh, gw)."""
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    batch = torch.from_numpy(((images / 255 - mean) / std).transpose(0, 3, 1, 2)).float()
    tokens = model.patch_embed(batch)
    tokens = model.norm_pre(model.patch_drop(model._pos_embed(tokens)))
    for block in model.blocks[:-1]:
        tokens = block(tokens)
    last = model.blocks[-1]
    width = tokens.shape[-1]
    q, k, _ = last.attn.qkv(last.norm1(tokens)).split(width, dim=-1)
    heads = []
    for h in range(4):
        part = slice(h * width // 4, (h + 1) * width // 4)
        logits = torch.einsum("bd,bnd->bn", q[:, 0, part], k[:, :, part]) / (width / 4) ** 0.5
        heads.append(logits.softmax(dim=-1)[:, 1:].reshape(len(images), 12, 12))
    return torch.stack(heads, dim=1).double().numpy()


def mass_mask(cells: np.ndarray, mass: float = 0.6) -> np.ndarray:
    """The fewest highest cells of one map (gh, gw) that hold ``mass`` of its sum."""
    kept, held = np.zeros(cells.size, bool), 0.0
    for index in np.argsort(-cells.ravel(), kind="stable"):
        if held >= mass * cells.sum():
            break
        kept[index], held = True, held + cells.ravel()[index]
    return kept.reshape(cells.shape)


def overlap(cells: np.ndarray, mask: np.ndarray) -> float:
    kept = np.kron(mass_mask(cells), np.ones((8, 8))) > 0
    return float((kept & mask).sum() / (kept | mask).sum())


def peak_cover(cells: np.ndarray, mask: np.ndarray) -> float:
    """How much of the highest cell the object covers, 0..1."""
    r, c = np.unravel_index(cells.argmax(), cells.shape)
    return float(mask[8 * r : 8 * r + 8, 8 * c : 8 * c + 8].mean())


def measure(model: VisionTransformer) -> dict[str, float]:
    images, masks = scenes()
    rows = class_rows(model, images)
    per_head = np.array(
        [[overlap(head, mask) for head in heads] for heads, mask in zip(rows, masks, strict=True)]
    )
    means = list(zip(rows.mean(axis=1), masks, strict=True))
    peaks = np.array([peak_cover(cells, mask) for cells, mask in means])
    return {
        "mean map": float(np.mean([overlap(cells, mask) for cells, mask in means])),
        "best fixed head": float(per_head.mean(axis=0).max()),
        "best head per image": float(per_head.max(axis=1).mean()),
        "highest cell on the object": float((peaks >= 0.5).mean()),
        "highest cell touches the object": float((peaks > 0).mean()),
    }


def stated() -> dict[str, dict[str, float]]:
    """The card's table of the committed scenes: column, row, number (percentages as fractions)."""
    section = (DATA / "MODEL_CARD.md").read_text(encoding="utf-8").split(CARD_SECTION, 1)[1]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\|.*\|$", section, flags=re.MULTILINE)
    ]
    header, body = lines[0], lines[2:7]
    return {
        column: {
            row[0]: float(row[i].rstrip("%")) / (100 if row[i].endswith("%") else 1) for row in body
        }
        for i, column in enumerate(header)
        if i
    }


def test_the_mass_mask_of_a_map_worked_by_hand():
    assert mass_mask(np.array([[0.4, 0.3], [0.2, 0.1]])).tolist() == [[True, True], [False, False]]
    assert mass_mask(np.array([[0.1, 0.7], [0.1, 0.1]])).tolist() == [[False, True], [False, False]]


def test_the_scenes_are_all_there_and_hold_objects():
    images, masks = scenes()
    assert images.shape == (25, 96, 96, 3)
    assert masks.shape == (25, 96, 96)
    cover = masks.mean(axis=(1, 2))
    assert cover.min() > 0.01
    assert cover.max() < 0.5


def test_the_shipped_weights_score_what_the_card_says():
    measured, card = measure(shipped()), stated()["DINO"]
    assert measured == pytest.approx(card, abs=TOLERANCE)


def test_untrained_weights_are_far_from_it():
    torch.manual_seed(0)
    untrained, trained = measure(build()), measure(shipped())
    assert trained["mean map"] > 2 * untrained["mean map"]
    assert trained["highest cell on the object"] > untrained["highest cell on the object"] + 0.2


def test_the_file_says_truly_what_it_holds():
    with safe_open(WEIGHTS, "pt") as file:
        metadata = file.metadata()
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        kinds = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    blocks = {name.split(".")[1] for name in shapes if name.startswith("blocks.")}
    width, patch, native = (int(metadata[key]) for key in ("width", "patch", "native_size"))
    assert kinds == {"F16"}
    assert shapes["patch_embed.proj.weight"] == (width, 3, patch, patch)
    assert shapes["pos_embed"] == (1, 1 + (native // patch) ** 2, width)
    assert len(blocks) == int(metadata["depth"])
    assert width % int(metadata["heads"]) == 0
    assert metadata["registers"] == "0"
    assert metadata["source"]


def test_the_package_stays_small():
    assert WEIGHTS.stat().st_size <= 6_000_000
    assert sum(file.stat().st_size for file in SCENES.iterdir()) <= 600_000
