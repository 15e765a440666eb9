"""What scenes are made of: glyphs of a font and backgrounds, rendered once as small images."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from textures import procedural_texture
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

FONT = Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")
FONT_SIZE = 109
"""The only size at which this bitmap font can be loaded."""

GLYPH_LIST = Path(__file__).with_name("glyphs.json")
GLYPH_SIDE = 96
TEXTURE_SIDE = 128
TRAIN_TEXTURES = 2400
HELD_OUT_TEXTURES = 400

TRAIN_PHOTOGRAPHS = (
    "astronaut.png",
    "brick.png",
    "camera.png",
    "cell.png",
    "clock_motion.png",
    "coffee.png",
    "hubble_deep_field.jpg",
    "rocket.jpg",
)
HELD_OUT_PHOTOGRAPHS = ("chelsea.png", "grass.png", "gravel.png", "retina.jpg")
"""Files of scikit-image's data folder that are CC0 or in the public domain, in two sets."""


@dataclass(frozen=True)
class Banks:
    """Everything that scenes are made of.

    glyphs: (G, 4, 96, 96) uint8, RGB premultiplied with alpha, longer side filling the square.
    textures: (T, 3, 128, 128) uint8.
    """

    glyphs: torch.Tensor
    textures: torch.Tensor


def render_glyph(character: str) -> Image.Image | None:
    """Draw one glyph as RGBA, cropped to what is visible; None where the font shows nothing."""
    font = ImageFont.truetype(FONT, FONT_SIZE)
    canvas = Image.new("RGBA", (160, 160), (0, 0, 0, 0))
    ImageDraw.Draw(canvas).text((8, 8), character, font=font, embedded_color=True)
    box = canvas.getchannel("A").point(lambda a: 255 * (a > 127)).getbbox()
    return None if box is None else canvas.crop(box)


def glyph_bank(characters: Sequence[str]) -> torch.Tensor:
    """Render glyphs, the longer side filling the square: (G, 4, 96, 96) uint8, premultiplied."""
    bank = np.zeros((len(characters), GLYPH_SIDE, GLYPH_SIDE, 4), np.uint8)
    inner = GLYPH_SIDE - 2
    for row, character in zip(bank, characters, strict=True):
        glyph = render_glyph(character)
        if glyph is None:
            raise ValueError(f"the font has no glyph for U+{ord(character):04X}")
        scale = inner / max(glyph.size)
        width, height = (max(1, round(side * scale)) for side in glyph.size)
        small = glyph.convert("RGBa").resize((width, height), Image.Resampling.BICUBIC)
        left, top = (GLYPH_SIDE - width) // 2, (GLYPH_SIDE - height) // 2
        row[top : top + height, left : left + width] = np.frombuffer(
            small.tobytes(), np.uint8
        ).reshape(height, width, 4)
    return torch.from_numpy(bank).permute(0, 3, 1, 2).contiguous()  # (G, 4, 96, 96)


def photograph_crop(photograph: Image.Image, rng: np.random.Generator) -> np.ndarray:
    """Cut a random square of a fifth of the shorter side to all of it: (128, 128, 3) uint8."""
    shorter = min(photograph.size)
    side = int(rng.uniform(0.2, 1.0) * shorter)
    left = int(rng.integers(0, photograph.width - side + 1))
    top = int(rng.integers(0, photograph.height - side + 1))
    crop = photograph.resize(
        (TEXTURE_SIDE, TEXTURE_SIDE),
        Image.Resampling.BICUBIC,
        box=(left, top, left + side, top + side),
    )
    return np.asarray(crop)


def texture_bank(folder: Path, photographs: Sequence[str], count: int, seed: int) -> torch.Tensor:
    """Render ``count`` backgrounds, every second one a crop of a photograph: (T, 3, 128, 128)."""
    rng = np.random.default_rng(seed)
    images = [Image.open(folder / name).convert("RGB") for name in photographs]
    bank = np.zeros((count, TEXTURE_SIDE, TEXTURE_SIDE, 3), np.uint8)
    for index in range(count):
        if index % 2:
            bank[index] = photograph_crop(images[index // 2 % len(images)], rng)
        else:
            bank[index] = procedural_texture(TEXTURE_SIDE, rng)
    return torch.from_numpy(bank).permute(0, 3, 1, 2).contiguous()  # (T, 3, 128, 128)


def photograph_folder() -> Path:
    """Find scikit-image's data folder, which only rendering needs."""
    import skimage.data

    return Path(skimage.data.__file__).parent


def load_banks(*, held_out: bool, textures: int, cache: Path | None = None) -> Banks:
    """Render the training or the held-out banks, or read them from ``cache`` if they are there."""
    name = "held_out" if held_out else "train"
    file = None if cache is None else cache / f"banks_{name}_{textures}.pt"
    if file is not None and file.exists():
        stored = torch.load(file, weights_only=True)
        return Banks(stored["glyphs"], stored["textures"])
    characters = [chr(int(code, 16)) for code in json.loads(GLYPH_LIST.read_text())[name]]
    photographs = HELD_OUT_PHOTOGRAPHS if held_out else TRAIN_PHOTOGRAPHS
    seed = 2 if held_out else 1
    banks = Banks(
        glyph_bank(characters), texture_bank(photograph_folder(), photographs, textures, seed)
    )
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"glyphs": banks.glyphs, "textures": banks.textures}, file)
    return banks


def halve(bank: torch.Tensor) -> torch.Tensor:
    """Average a bank (n, C, h, w) uint8 down to half its side, for small views."""
    return torch.cat(
        [functional.avg_pool2d(part.float(), 2).round().byte() for part in bank.split(256)]
    )
