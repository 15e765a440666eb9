"""Small image files for whole runs, no two alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from tests.helpers.pictures import scene

if TYPE_CHECKING:
    from pathlib import Path


def save_scene(path: Path, height: int, width: int, seed: int = 0) -> Path:
    """Save an image without any symmetry, with noise of its own; creates the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng([seed, *path.name.encode()]).integers(0, 60, (height, width, 3))
    pixels = np.clip(scene(height, width).astype(int) * 3 // 4 + noise, 0, 255)
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path
