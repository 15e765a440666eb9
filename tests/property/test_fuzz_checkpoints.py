"""Damaged checkpoints: each loads or is refused in the tool's words, quickly.

Hundreds of them in the quick run, thousands in ``make test-all``.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from attnviz.domain.requests import ModelRequest
from attnviz.errors import AttnvizError, CheckpointError
from attnviz.models.load import load_backbone
from tests.helpers.checkpoints import chunked, original, prefixed, randomise, undrawn
from tests.helpers.command_line import files_below
from tests.helpers.damage import damage

FILES_A_SEED = 170
CONFIGS_A_FOLDER = 220
SLOWEST = 5.0
"""Seconds; of a shared machine, where an attempt takes some hundredths."""

ODD = (None, True, 0, -1, 1, 3, 7, 1.5, 10**9, 10**30, float("nan"), "", "8", [], [8, 8], {}, "∞")


def tiny(**more: Any) -> dict[str, Any]:
    return original(depth=1, width=16, patch=4, **more)


def seeds(folder: Path) -> dict[str, bytes]:
    """One whole file of each kind, as small as they come."""
    files = {}
    contents = {
        "plain.pth": tiny(),
        "dinov2.pth": tiny(layout="dinov2", registers=2),
        "training.pth": {
            "teacher": prefixed("module.backbone.", tiny()),
            "student": prefixed("module.backbone.", tiny(seed=1)),
            "optimizer": {"state": {0: torch.zeros(3)}, "groups": [{"lr": 0.1}]},
            "epoch": 3,
        },
        "chunked.pth": {"model": chunked(tiny(), 1)},
        "half.pth": {name: tensor.half() for name, tensor in tiny().items()},
        "legacy.pth": tiny(),
    }
    for name, content in contents.items():
        path = folder / name
        torch.save(content, path, _use_new_zipfile_serialization=name != "legacy.pth")
        files[name] = path.read_bytes()
    save_file(tiny(), folder / "a.safetensors")
    save_file(tiny(layout="dinov2", registers=2), folder / "b.safetensors")
    return files | {
        name: (folder / name).read_bytes() for name in ("a.safetensors", "b.safetensors")
    }


def folders(folder: Path) -> dict[str, tuple[dict[str, Any], bytes]]:
    """Folders of transformers: config and weights."""
    sizes = {
        "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 64, "patch_size": 4, "image_size": 16,
    }  # fmt: skip
    made = {
        "vit": undrawn(
            lambda config: transformers.ViTModel(config, add_pooling_layer=False),
            transformers.ViTConfig(**sizes),
        ),
        "dinov2": undrawn(transformers.Dinov2Model, transformers.Dinov2Config(**sizes)),
        "dinov3": undrawn(
            transformers.DINOv3ViTModel,
            transformers.DINOv3ViTConfig(**sizes, num_register_tokens=2),
        ),
    }
    found = {}
    for name, model in made.items():
        randomise(model).save_pretrained(folder / name)
        config = json.loads((folder / name / "config.json").read_text())
        found[name] = config, (folder / name / "model.safetensors").read_bytes()
    return found


class Attempts:
    """Loads what it is given and counts how it went."""

    def __init__(self) -> None:
        self.loaded = self.refused = 0
        self.unreadable: list[str] = []
        self.slowest = 0.0

    def __call__(self, path: Path, **args: int) -> None:
        start = time.perf_counter()
        try:
            load_backbone(ModelRequest(checkpoint=path, args=args, device="cpu"))
        except AttnvizError as error:
            self.refused += 1
            self.unreadable += [] if error.message.isprintable() else [error.message]
        else:
            self.loaded += 1
        self.slowest = max(self.slowest, time.perf_counter() - start)


def counts(most: int) -> pytest.MarkDecorator:
    """A tenth in the quick run."""
    long = pytest.param(most, marks=pytest.mark.slow(reason="tries ten times as many files"))
    return pytest.mark.parametrize("count", [most // 10, long])


@counts(FILES_A_SEED)
def test_no_damaged_weights_file_gets_past_the_one_error(tmp_path: Path, capfd, count: int) -> None:
    (tmp_path / "seeds").mkdir()
    whole = seeds(tmp_path / "seeds")
    (tmp_path / "try").mkdir()
    attempt = Attempts()
    for name, data in whole.items():
        path = tmp_path / "try" / name
        path.write_bytes(data)
        attempt(path, heads=2)
    assert attempt.loaded == len(whole)
    for name, data in whole.items():
        chance = random.Random(name)
        path = tmp_path / "try" / name
        for _ in range(count):
            path.write_bytes(damage(data, chance, list(whole.values())))
            attempt(path, heads=2)
    assert attempt.refused + attempt.loaded >= 8 * count
    assert attempt.refused >= 3.53 * count
    assert attempt.slowest < SLOWEST
    assert attempt.unreadable == []
    assert files_below(tmp_path / "try") == sorted(whole)
    printed, complained = capfd.readouterr()
    assert printed == ""
    assert "Traceback" not in complained
    assert "Warning" not in complained


def edited(config: dict[str, Any], chance: random.Random) -> str:
    """The config with some of its fields lost, of another type or out of all proportion."""
    changed = dict(config)
    for _ in range(chance.randint(1, 3)):
        name = chance.choice(sorted(changed))
        kind = chance.randrange(4)
        if kind == 0:
            del changed[name]
        elif kind == 1:
            changed[chance.choice(sorted(config))] = changed[name]
        else:
            changed[name] = chance.choice(ODD)
    return json.dumps(changed)


@counts(CONFIGS_A_FOLDER)
def test_no_damaged_config_gets_past_the_one_error(tmp_path: Path, capfd, count: int) -> None:
    attempt = Attempts()
    for name, (config, weights) in folders(tmp_path).items():
        chance = random.Random(name)
        folder = tmp_path / f"try-{name}"
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "config.json").write_text(json.dumps(config))
        before = attempt.loaded
        attempt(folder)
        assert attempt.loaded == before + 1
        text = json.dumps(config).encode()
        for turn in range(count):
            if turn % 3:
                (folder / "config.json").write_text(edited(config, chance))
            else:
                (folder / "config.json").write_bytes(damage(text, chance, [weights]))
            attempt(folder)
        assert files_below(folder) == ["config.json", "model.safetensors"]
    assert attempt.refused + attempt.loaded >= 3 * count
    assert attempt.refused >= 0.91 * count
    assert attempt.slowest < SLOWEST
    assert attempt.unreadable == []
    assert "Warning" not in capfd.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"a": ' * 2_000, "\ufeff{}", "NaN"])
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    save_file(tiny(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError):
        load_backbone(ModelRequest(checkpoint=tmp_path, args={"heads": 2}, device="cpu"))
