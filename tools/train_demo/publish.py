"""Write trained weights to the package and their scores to the model card."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import torch
from banks import HELD_OUT_TEXTURES, TRAIN_TEXTURES, load_banks
from evaluate import judge, read_scenes, table
from model import averaged, build_vit, load_weights, save_weights
from scenes import judged_scenes
from sharpen import choose_factors, sharpened

ROOT = Path(__file__).parents[2]
WEIGHTS = ROOT / "attnviz" / "data" / "demo.safetensors"
CARD = ROOT / "attnviz" / "data" / "MODEL_CARD.md"
SOURCE = "DINO self-distillation on drawn scenes, tools/train_demo of attnviz"
SCENES = ROOT / "tests" / "data" / "demo_scenes"


def main() -> None:
    """Write the weights, judge all models on all sets of scenes, update the tables of the card."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "dino", type=Path, nargs="+", help="weights to publish; the mean of several"
    )
    parser.add_argument(
        "--supervised",
        type=Path,
        nargs="+",
        required=True,
        help="weights to compare with; the mean of several",
    )
    parser.add_argument("--cache", type=Path, help="folder for rendered banks")
    options = parser.parse_args()
    torch.set_num_threads(2)
    seen = load_banks(held_out=False, textures=TRAIN_TEXTURES, cache=options.cache)
    scenes = judged_scenes(seen, count=400, side=96, seed=11)
    files = {"supervised": options.supervised, "DINO": options.dino}
    trained = {name: averaged([load_weights(f) for f in some]) for name, some in files.items()}
    sharp = {}
    for name, model in trained.items():
        factors = choose_factors(model, *scenes)
        print(f"factors of the heads of the last block, {name}: {factors.round(1).tolist()}")
        sharp[name] = sharpened(model, factors)
    save_weights(sharp["DINO"], WEIGHTS, source=SOURCE)
    WEIGHTS.chmod(0o644)
    torch.manual_seed(0)
    models = {
        "untrained": build_vit().eval(),
        "supervised as trained": trained["supervised"],
        "DINO as trained": trained["DINO"],
        "supervised": sharp["supervised"],
        "DINO": load_weights(WEIGHTS),
    }
    banks = load_banks(held_out=True, textures=HELD_OUT_TEXTURES, cache=options.cache)
    sets = {
        "held-out": judged_scenes(banks, count=200, side=96, seed=7),
        "vivid": judged_scenes(banks, count=200, side=96, seed=7, vivid=True),
        "committed": read_scenes(SCENES),
    }
    card = CARD.read_text(encoding="utf-8")
    for name, scenes in sets.items():
        scores = table({model: judge(vit, *scenes) for model, vit in models.items()})
        print(f"{name}\n{scores}\n")
        table_block = rf"(<!-- {name} scores -->\n).*?(\n<!-- end -->)"
        card, count = re.subn(table_block, rf"\1\n{scores}\n\2", card, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{CARD} has {count} blocks for the {name} scores, expected 1")
    CARD.write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
