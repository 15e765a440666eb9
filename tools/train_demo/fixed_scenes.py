"""Write the small set of held-out scenes, with masks, that the tests judge the weights on."""

from __future__ import annotations

import argparse
from pathlib import Path

from banks import HELD_OUT_TEXTURES, load_banks
from PIL import Image
from scenes import judged_scenes

COUNT = 200
EVERY = 8
"""Of the 200 scenes that the model card reports on, every eighth is committed: 25 scenes."""


def main() -> None:
    """Write ``scene_NNN.png`` and ``scene_NNN.mask.png`` to a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--cache", type=Path, help="folder for rendered banks")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    banks = load_banks(held_out=True, textures=HELD_OUT_TEXTURES, cache=options.cache)
    images, masks = judged_scenes(banks, count=COUNT, side=96, seed=7)
    for index in range(0, COUNT, EVERY):
        file = options.out / f"scene_{index:03d}.png"
        Image.fromarray(images[index]).save(file, optimize=True)
        Image.fromarray(masks[index]).save(file.with_suffix(".mask.png"), optimize=True)


if __name__ == "__main__":
    main()
