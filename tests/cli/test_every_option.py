"""Every option that a command accepts changes what comes out, or is refused with a reason."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.cli.app import command_with_options
from attnviz.cli.panels import DRAWING, figure_panels
from attnviz.domain import sha256_of
from attnviz.domain.kinds import KINDS
from attnviz.domain.options import option_fields
from tests.helpers import checkpoints
from tests.helpers.photos import save_scene
from tests.helpers.writer_neurons import neuron_list

OWN = {
    "layer": ["--layer", "0"],
    "layers": ["--layers", "0"],
    "heads": ["--heads", "0"],
    "threshold": ["--threshold", "0.3"],
    "overlay": ["--overlay"],
    "overlay-only": ["--overlay-only"],
    "distance": ["--no-distance"],
    "query": ["--query", "mean"],
    "each-head": ["--each-head"],
    "fusion": ["--fusion", "max"],
    "residual": ["--residual", "0.1"],
    "discard-ratio": ["--discard-ratio", "0.3"],
    "discard": ["--discard", "before"],
    "start-layer": ["--start-layer", "2"],
    "layers-shown": ["--layers-shown", "1"],
    "at": ["--at", "0,1"],
    "xy": ["--xy", "1,1"],
    "keep-ratio": ["--keep-ratio", "0.1"],
    "csv": ["--csv"],
    "direction": ["--direction", "to"],
    "lfe": ["--lfe"],
    "sinks": ["--sinks"],
    "method": ["--method", "contribution"],
    "class": ["--class", "0"],
    "like": ["--like", "a.png"],
    "foreground": ["--foreground"],
    "flip-foreground": ["--flip-foreground"],
    "outlier-threshold": ["--outlier-threshold", "0.1"],
    "norm": ["--norm", "linear"],
    "part": ["--part", "q"],
    "max-layer": ["--max-layer", "2"],
    "top": ["--top", "3"],
    "sparse": ["--sparse"],
    "show": ["--show", "rollout"],
    "baseline": ["--baseline", "black"],
    "chefer": ["--chefer"],
    "seed": ["--seed", "7"],
}
"""A value of every option that belongs to a kind of figure, other than its default."""

OWN_OF = {
    "discover": {"method": ["--method", "lost"]},
    "match": {"threshold": ["--threshold", "0.9"], "pairs": ["--pairs", "2"]},
}
"""The same for options whose values depend on the kind."""

DRAWN = {
    "width": ["--width", "5"],
    "dpi": ["--dpi", "31"],
    "cmap": ["--cmap", "hot"],
    "scale": ["--scale", "shared"],
    "limits": ["--scale", "fixed", "--limits", "0,0.01"],
    "interpolation": ["--interpolation", "bilinear"],
    "alpha": ["--alpha", "0.2"],
}

SHARED = {
    "model": ["--model", "vit_small_patch8_224"],
    "checkpoint": ["--checkpoint", "other.pth"],
    "checkpoint-key": ["--checkpoint-key", "student"],
    "model-arg": ["--model-arg", "heads=4"],
    "random-weights": ["--random-weights"],
    "device": ["--device", "mps"],
    "precision": ["--precision", "bfloat16"],
    "positions": ["--positions", "timm"],
    "stride": ["--stride", "4"],
    "test-registers": ["--test-registers", "neurons.json"],
    "register-count": ["--register-count", "2"],
    "verify": ["--verify"],
    "size": ["--size", "24"],
    "fit": ["--fit", "squash"],
    "mean": ["--mean", "0.1"],
    "std": ["--std", "0.9"],
    "bands": ["--bands", "3,2,1"],
    "range": ["--range", "0,100"],
    "max-pixels": ["--max-pixels", "9"],
    "out": ["--out", "elsewhere/page.html"],
    "name": ["--name", "other"],
    "format": ["--format", "svg"],
    "save-data": ["--save-data"],
    "skip-existing": ["--skip-existing"],
    "table": ["--table", "table.csv"],
    "summary": ["--summary"],
    "fail-fast": ["--fail-fast"],
    "engine": ["--engine", "ray", "--workers", "1"],
    "ray-address": ["--ray-address", "here:1"],
    "cpus-per-model": ["--cpus-per-model", "1"],
    "shard": ["--shard", "0/3"],
    "json": ["--json"],
    "quiet": ["--quiet"],
    "config": ["--config", "options.toml"],
    "help": ["--help"],
    # Of single commands.
    "show": ["--show", "rollout"],
    "image": ["--image", "b.png"],
    "mask": ["--mask", "masks/a.png"],
    "rows": ["--rows", "layers"],
    "animation": ["--animation"],
    "rollout": ["--no-rollout"],
}

SAME_FILES = {"batch-size", "workers"}
"""How the work is divided. That they reach the run is in ``test_cli_options.py``, and that they
change no file in other tests."""


def digest(path: Path) -> str:
    if path.suffix == ".png":
        return hashlib.sha256(np.asarray(Image.open(path)).tobytes()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def outcome(real, tmp_path, tiny_weights):
    """What a command line comes to: exit code, output, and the content of its files.

    Of PNG files the pixels, so that an option that only stands in the record has no effect.
    """
    save_scene(tmp_path / "a.png", 40, 56)
    save_scene(tmp_path / "b.png", 48, 48)
    save_scene(tmp_path / "masks" / "a.png", 40, 56)
    checkpoints.save(tmp_path / "other.pth", checkpoints.original(seed=5))
    (tmp_path / "tiny.pth").symlink_to(tiny_weights)
    (tmp_path / "boxes.csv").write_text(
        "image,left,top,right,bottom\na,0,0,9,9\n", encoding="utf-8"
    )
    (tmp_path / "options.toml").write_text("size = 24\n", encoding="utf-8")
    neurons = neuron_list((0, 1), (1, 2), weights_sha256=sha256_of(tiny_weights.read_bytes()))
    (tmp_path / "neurons.json").write_text(neurons.to_json(), encoding="utf-8")
    inputs = set(tmp_path.rglob("*"))

    def run(*arguments: str):
        made = real(*arguments)
        files = {
            path.relative_to(tmp_path).as_posix(): digest(path)
            for path in tmp_path.rglob("*")
            if path.is_file() and path not in inputs
        }
        for path in set(tmp_path.iterdir()) - inputs:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return made.code, made.out, made.err, files

    return run


WEIGHTS = ["--checkpoint", "tiny.pth", "--model-arg", "heads=2"]
QUICK = ["--dpi", "30", "--out", "out"]
TARGET = {"relevance": ["--like", "b.png"], "match": ["--like", "b.png"]}
NEEDED = {"flip-foreground": ["--foreground"]}


def figure(kind: str) -> list[str]:
    return [kind, "a.png", *WEIGHTS, *QUICK, "--workers", "0", *TARGET.get(kind, [])]


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_of_a_kind_has_an_effect(kind, outcome):
    for each in option_fields(KINDS[kind].request):
        needed = NEEDED.get(each.name, [])
        plain = outcome(*figure(kind), *needed)
        changed = outcome(*figure(kind), *needed, *(OWN | OWN_OF.get(kind, {}))[each.name])
        assert plain[0] == 0, plain[2]
        # The numbers of a figure are printed, too.
        assert changed[1:] != plain[1:], each
        assert changed[0] == 0 or f"--{each.name}" in changed[2], each


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_of_the_drawing_has_an_effect(kind, outcome):
    more = ["--at", "0,1"] if kind == "patch" else []  # only the map of a single one is laid over
    plain = outcome(*figure(kind), *more)
    for each in DRAWING.options():
        changed = outcome(*figure(kind), *more, *DRAWN[each.name])
        refused = changed[0] == 2 and f"--{each.name} has no effect" in changed[2]
        assert refused == (each.name in KINDS[kind].unused), each
        assert changed[3] != plain[3], each


COMMANDS = {
    "heads": ["heads", "a.png", *WEIGHTS, *QUICK],
    "compare": ["compare", "a.png", *WEIGHTS, *QUICK],
    "evolve": ["evolve", "tiny.pth", "other.pth", "--image", "a.png", *WEIGHTS[2:], *QUICK],
    "eval": ["eval", "a.png", "masks", *WEIGHTS],
    "explore": ["explore", "a.png", *WEIGHTS, "--out", "out/page.html"],
    "registers": ["registers", "a.png", *WEIGHTS, "--dpi", "30", "--threshold", "1", "--out",
                  "out/n.json"],
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_other_option_has_an_effect(command, outcome):
    own = {each.name for each in figure_panels(KINDS["heads"])[0].options()}
    seen = {name for name in own | set(DRAWN) if command == "heads"} | SAME_FILES
    plain = outcome(*COMMANDS[command])
    assert plain[0] == 0, plain[2]
    values = SHARED | OWN | DRAWN | {"scale": ["--scale", "panel"]}
    if command == "registers":
        values |= {"scale": DRAWN["scale"]}
    if command == "eval":
        boxes = ["--boxes", "boxes.csv"]
        values |= {"format": ["--format", "csv"], "boxes": boxes}
        values |= {"method": [*boxes, "--method", "lost"]}
    if command == "explore":
        values |= {"like": ["--like", "b.png"]}
    for parameter in command_with_options(command).params:
        name = parameter.opts[0].removeprefix("--")
        if parameter.param_type_name != "option" or name in seen:
            continue
        if name == "skip-existing":  # it has one where something exists already
            continue
        more = ["missing.png"] if name == "fail-fast" else []
        without = outcome(*COMMANDS[command], *more) if more else plain
        assert outcome(*COMMANDS[command], *more, *values[name]) != without, name
