"""Every way in which weights lie on a disk, through the command line.

One small network is written in all of them; its maps must be the same to the last bit, and another
network beside it must give other maps. Full-size files are used where shapes name the model.
"""

from __future__ import annotations

import argparse
import json
import os

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from tests.helpers import formula_weights
from tests.helpers.checkpoints import HEADS, chunked, meta_dinov3, original, prefixed
from tests.helpers.command_line import arrays, attnviz, meta

TEACHER, STUDENT = original(), original(seed=1)
V2, REGISTERS = original("dinov2"), original("dinov2", registers=4)
OWN = ("--model-arg", f"heads={HEADS}")


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    """A PNG of noise, 48 high and 80 wide."""
    path = tmp_path_factory.mktemp("picture") / "noise.png"
    noise = np.random.default_rng(3).integers(0, 256, (48, 80, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    return path


@pytest.fixture
def drawn(picture, tmp_path):
    """What ``attnviz layers`` saves: attention (L, H, gh, gw), and the record."""

    def call(*options):
        out = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
        code = attnviz(
            "layers", picture, "--size", "original", "--save-data", "--quiet", "--no-distance",
            "--dpi", 40, "--out", out, *options,
        )  # fmt: skip
        assert code == 0
        return arrays(out / "noise.layers.npz")["attention"], meta(out / "noise.layers.npz")

    return call


@pytest.fixture
def refused(picture, tmp_path, capsys):
    """The line on standard error of a run that must fail, and its exit code."""

    def call(*options, code=1):
        out = tmp_path / "refused"
        assert attnviz("heads", picture, "--quiet", "--out", out, *options) == code
        said = capsys.readouterr()
        assert said.out == ""
        assert "Traceback" not in said.err
        assert not out.exists() or not list(out.iterdir())
        return " ".join(said.err.split())

    return call


def stored(path, content):
    (save_file if path.suffix == ".safetensors" else torch.save)(content, path)
    return path


@pytest.fixture(scope="module")
def plain(picture, tmp_path_factory):
    """The maps of a network in a flat file, once for each network."""
    known = {}

    def maps(tensors, *options):
        if id(tensors) not in known:
            folder = tmp_path_factory.mktemp("plain")
            path = stored(folder / "flat.pth", tensors)
            attnviz("layers", picture, "--size", "original", "--save-data", "--quiet", "--dpi", 40,
                    "--no-distance", "--out", folder, "--checkpoint", path, *options)  # fmt: skip
            known[id(tensors)] = arrays(folder / "noise.layers.npz")["attention"]
        return known[id(tensors)]

    return maps


HEAD = {"head.mlp.0.weight": torch.eye(3), "head.last_layer.weight_v": torch.eye(3)}
TRAINING = {
    "student": prefixed("module.backbone.", STUDENT) | prefixed("module.", HEAD),
    "teacher": prefixed("backbone.", TEACHER) | HEAD,
    "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]},
    "epoch": 7,
    "args": argparse.Namespace(arch="vit_small", patch_size=8),
}


@pytest.mark.parametrize(
    ("content", "network", "file"),
    [
        (TRAINING, TEACHER, "checkpoint.pth"),
        ({"teacher": prefixed("module.backbone.", TEACHER)}, TEACHER, "checkpoint0100.pth"),
        ({"model": STUDENT, "model_ema": TEACHER, "epoch": 3}, TEACHER, "model_best.pth.tar"),
        ({"state_dict": STUDENT, "state_dict_ema": TEACHER}, TEACHER, "last.pth.tar"),
        (prefixed("module._orig_mod.", TEACHER), TEACHER, "compiled.pth"),
        ({"state_dict": prefixed("model.backbone.", TEACHER)}, TEACHER, "lightning.ckpt"),
        (TEACHER, TEACHER, "flat.safetensors"),
        ({"teacher": prefixed("backbone.", chunked(REGISTERS, 2))
          | {"dino_head.mlp.0.weight": torch.eye(3)}}, REGISTERS, "teacher_checkpoint.pth"),
        ({"model": prefixed("teacher.backbone.", chunked(V2, 1))
          | prefixed("student.backbone.", chunked(original("dinov2", seed=1), 1))},
         V2, "model_0001.rank_0.pth"),
        (chunked(V2, 3), V2, "chunked.pth"),
    ],
)  # fmt: skip
def test_the_same_network_gives_the_same_maps_in_any_file(
    content, network, file, tmp_path, drawn, plain
):
    ours, _ = drawn("--checkpoint", stored(tmp_path / file, content), *OWN)
    assert (ours == plain(network, *OWN)).all()
    assert ours.std() > 1e-3


def test_the_teacher_is_taken_unless_the_student_is_asked_for(tmp_path, drawn, plain, capsys):
    path = stored(tmp_path / "checkpoint.pth", TRAINING)
    teacher, record = drawn("--checkpoint", path, *OWN)
    assert record["weights"] == "checkpoint.pth (teacher)"
    student, record = drawn("--checkpoint", path, "--checkpoint-key", "student", *OWN)
    assert record["weights"] == "checkpoint.pth (student)"
    assert (student == plain(STUDENT, *OWN)).all()
    assert np.abs(student - teacher).max() > 1e-2


def test_an_absent_key_lists_those_that_are_there(tmp_path, refused):
    path = stored(tmp_path / "checkpoint.pth", TRAINING)
    said = refused("--checkpoint", path, "--checkpoint-key", "ema", *OWN)
    assert f"{path} has no network under 'ema'" in said
    assert "student, teacher" in said


def test_half_precision_files_are_run_in_float32(tmp_path, drawn, plain):
    halves = {name: tensor.half() for name, tensor in TEACHER.items()}
    ours, record = drawn("--checkpoint", stored(tmp_path / "half.pth", halves), *OWN)
    again = {name: tensor.float() for name, tensor in halves.items()}
    assert (ours == plain(again, *OWN)).all()
    assert record["options"]["precision"] == "float32"
    assert 0 < np.abs(ours - plain(TEACHER, *OWN)).max() < 0.05


@pytest.mark.parametrize("bias", [0.0, 0.7])
def test_metas_dinov3_file_with_and_without_biases(bias, tmp_path, drawn):
    """A bias that is not zero is never dropped: it changes the maps."""
    maps = [
        drawn("--checkpoint", stored(tmp_path / f"{b}.pth", meta_dinov3(bias=b)))[0]
        for b in (0.0, bias)
    ]
    assert maps[0].shape == (2, HEADS, 6, 10)
    assert (np.abs(maps[0] - maps[1]).max() > 1e-2) == bool(bias)


def test_a_foreign_prefix_and_a_missing_block_load_nothing(tmp_path, refused):
    path = stored(tmp_path / "foo.pth", prefixed("foo.", TEACHER))
    said = refused("--checkpoint", path, *OWN)
    assert f"0 of {len(TEACHER)} tensors matched; first missing: cls_token" in said.replace(
        "matched, first", "matched; first"
    )
    without = {n: t for n, t in TEACHER.items() if not n.startswith("blocks.2.")}
    path = stored(tmp_path / "hole.pth", without)
    said = refused("--checkpoint", path, *OWN)
    assert f"loaded {len(without)} of {len(TEACHER)} tensors" in said
    assert "first missing: blocks.2.norm1.weight" in said


def test_a_resnet_file_is_in_no_known_layout(tmp_path, refused):
    resnet = timm.create_model("test_resnet").state_dict()
    said = refused("--checkpoint", stored(tmp_path / "resnet.pth", resnet))
    assert (
        f"is in no known layout of a Vision Transformer: 0 of its {len(resnet)} tensors matched"
        in said
    )
    assert "known are the layouts of" in said


def test_paths_that_are_no_checkpoint_are_wrong_use(tmp_path, refused):
    assert "nope.pth does not exist" in refused("--checkpoint", tmp_path / "nope.pth", code=2)
    said = refused("--checkpoint", tmp_path, code=2)
    assert "is a folder without config.json" in said


def test_a_model_without_weights_is_not_filled_with_random_ones(refused, drawn):
    """Only on request, and then the record says so."""
    assert "has no pretrained weights" in refused("--model", "vit_base_patch16_xp_224")
    _, record = drawn("--model", "test_vit", "--random-weights")
    assert record["random_weights"] is True
    assert record["weights"] == "random weights"


def test_the_patch_size_of_the_file_is_that_of_the_model_or_an_error(tmp_path, refused):
    """Neither patch kernels nor input channels are resampled to fit."""
    path = stored(tmp_path / "s16.pth", formula_weights.state_dict("dino_vits16"))
    for model in ("dino_vits8", "vit_small_patch8_224"):
        said = refused("--checkpoint", path, "--model", model)
        assert f"patch size 16 in the weights, 8 in {model}" in said
        assert "--model dino_vits16" in said
    grey = formula_weights.state_dict("dino_vits16")
    grey["patch_embed.proj.weight"] = grey["patch_embed.proj.weight"][:, :1].clone()
    path = stored(tmp_path / "grey.pth", grey)
    said = refused("--checkpoint", path, "--model", "dino_vits16")
    assert "input channels 1 in the weights, 3 in dino_vits16" in said


class Marker:
    """A pickle of this makes a folder when it is read without care."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_nothing_in_a_file_is_executed(tmp_path, refused):
    marker = tmp_path / "marker"
    path = stored(tmp_path / "evil.pth", {"teacher": TEACHER, "extra": Marker(marker)})
    assert "mkdir, which is refused" in refused("--checkpoint", path, *OWN)
    assert not marker.exists()
    path = stored(tmp_path / "module.pth", nn.Linear(2, 2))
    assert "Linear, which is refused" in refused("--checkpoint", path, *OWN)


def test_two_files_of_one_model_are_told_apart(tmp_path, drawn):
    """The same shapes and name, other weights: the record and the maps differ."""
    first, one = drawn("--checkpoint", stored(tmp_path / "ordinary.pth", TEACHER), *OWN)
    second, two = drawn("--checkpoint", stored(tmp_path / "300ep.pth", STUDENT), *OWN)
    assert (one["weights"], two["weights"]) == ("ordinary.pth", "300ep.pth")
    assert one["weights_sha256"] != two["weights_sha256"]
    assert np.abs(first - second).max() > 1e-2


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """An empty cache of the hub; returns a function that puts weights of a timm model into it."""
    from huggingface_hub import constants

    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    def put(timm_name, tensors):
        folder = cache / f"models--timm--{timm_name}"
        snapshot = folder / "snapshots" / "0123abcd"
        snapshot.mkdir(parents=True)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("0123abcd")
        save_file(tensors, snapshot / "model.safetensors")

    return put


@pytest.mark.parametrize("size", [("--size", "224"), ("--size", "518"), ()])
def test_dinov2_by_name_and_by_file_is_one_model(
    size, tmp_path, hub_cache, picture, full_size_dinov2
):
    """A file whose positions are of a 37 x 37 grid, at 224 pixels, at 518 and by default."""
    file, tensors = full_size_dinov2
    hub_cache("vit_small_patch14_dinov2.lvd142m", tensors)
    maps = []
    for number, way in enumerate((("--model", "dinov2_vits14"), ("--checkpoint", file))):
        out = tmp_path / str(number)
        code = attnviz("heads", picture, *way, "--save-data", "--quiet", "--dpi", 40,
                       "--no-distance", "--fit", "squash", "--out", out, *size)  # fmt: skip
        assert code == 0
        maps.append(arrays(out / "noise.heads.npz")["attention"])
        record = meta(out / "noise.heads.npz")
        assert record["model"] == "dinov2_vits14"
        assert record["architecture"]["positions"] == "original"
    assert (maps[0] == maps[1]).all()
    side = 16 if "224" in size else 37
    assert maps[0].shape == (6, side, side)


@pytest.fixture(scope="module")
def full_size_dinov2(tmp_path_factory):
    tensors = formula_weights.state_dict("dinov2_vits14")
    return stored(tmp_path_factory.mktemp("dinov2") / "dinov2_vits14_pretrain.pth", tensors), {
        name: tensor for name, tensor in tensors.items() if name != "mask_token"
    }


def test_a_file_trained_at_224_pixels_keeps_its_own_grid(tmp_path, drawn):
    """A DINOv2 of 16 x 16 stored positions has no name of its own; at 224 nothing is resized."""
    tensors = formula_weights.state_dict("dinov2_vits14")
    tensors["pos_embed"] = tensors["pos_embed"][:, : 1 + 16 * 16].clone()
    path = stored(tmp_path / "at224.pth", tensors)
    options = ("--checkpoint", path, "--size", "224x224", "--fit", "squash", "--layers", "0,11")
    own = ("--model-arg", "heads=6")
    maps, _ = drawn(*options, *own)
    assert maps.shape == (2, 6, 16, 16)
    for other in ((*own, "--positions", "timm"), ("--model", "dinov2_vits14")):
        assert (drawn(*options, *other)[0] == maps).all()


def test_a_named_model_that_is_not_here_says_what_to_do(hub_cache, refused):
    said = refused("--model", "dinov2_vits14")
    assert "cannot download the weights of dinov2_vits14" in said
    assert "--checkpoint FILE" in said
    assert "timm/vit_small_patch14_dinov2.lvd142m" in said


def test_the_list_of_models_shows_which_weights_are_here(hub_cache, capsys):
    hub_cache("vit_small_patch8_224.dino", {"a": torch.zeros(1)})
    assert attnviz("models", "--json") == 0
    rows = {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    hub = {name: row["cached"] for name, row in rows.items() if not row["packaged"]}
    assert [name for name, cached in hub.items() if cached] == ["dino_vits8"]
    shown = ("patch", "width", "depth", "heads", "registers", "native_size", "parameters")
    row = rows["dinov2_vitg14_reg"]
    assert [row[name] for name in shown] == [14, 1536, 40, 24, 4, 518, 1_136_483_840]
    assert row["licence"] == "Apache-2.0"
    assert attnviz("models") == 0
    table = capsys.readouterr().out
    assert all(name in table for name in rows)
    lines = [line.split() for line in table.splitlines()]
    assert [
        "dino_vits8",
        "8",
        "384",
        "12",
        "6",
        "0",
        "224",
        "22",
        "M",
        "Apache-2.0",
        "yes",
    ] in lines
    assert sum(line[-1] == "no" for line in lines) == len(hub) - 1


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 1, "the number of heads is not stored in them (patch 8, width 64, depth 4)"),
        (("--model-arg", "heads=3"), 1, "3 heads do not divide the width 64"),
        (("--model-arg", "heads=0"), 2, "heads"),
        (("--model-arg", "heads=two"), 2, "heads"),
        (("--model-arg", "colour=2"), 2, "colour"),
        ((*OWN, "--model-arg", "depth=3"), 1, "depth 4 in the weights, 3 in"),
        ((*OWN, "--model-arg", "width=96"), 1, "width 64 in the weights, 96 in"),
        ((*OWN, "--model-arg", "patch=16"), 1, "patch size 8 in the weights, 16 in"),
        ((*OWN, "--model-arg", "registers=4"), 1, "register tokens 0 in the weights, 4 in"),
        ((*OWN, "--model-arg", "size=224"), 2, "do not fit the 28x28 grid of --model-arg"),
    ],
)
def test_sizes_of_ones_own_that_do_not_fit_are_explained(options, code, message, tmp_path, refused):
    path = stored(tmp_path / "own.pth", TEACHER)
    said = refused("--checkpoint", path, *options, code=code)
    assert message in said


def test_the_way_out_of_unknown_heads_is_told(tmp_path, refused):
    said = refused("--checkpoint", stored(tmp_path / "own.pth", TEACHER))
    assert "name the model with --model, or give --model-arg heads=N" in said


def test_sizes_of_ones_own_describe_the_model(tmp_path, drawn, plain):
    """All of them, on a model whose own sizes are others; each head count is another network."""
    path = stored(tmp_path / "own.pth", TEACHER)
    sizes = {"depth": 4, "width": 64, "heads": HEADS, "patch": 8, "registers": 0, "size": 32}
    options = [word for name, n in sizes.items() for word in ("--model-arg", f"{name}={n}")]
    ours, record = drawn("--checkpoint", path, "--model", "dino_vits16", *options)
    assert (ours == plain(TEACHER, *OWN)).all()
    assert record["architecture"]["native_size"] == [32, 32]
    four, record = drawn("--checkpoint", path, "--model-arg", "heads=4")
    assert four.shape[1] == record["architecture"]["heads"] == 4
    assert np.abs(four.mean(axis=1) - ours.mean(axis=1)).max() > 1e-2


def test_registers_of_ones_own_in_a_rotary_model(drawn):
    ours, record = drawn(
        "--model", "dinov3_vits16", "--random-weights", "--model-arg", "registers=2",
        "--model-arg", "depth=2",
    )  # fmt: skip
    assert ours.shape[0] == 2
    assert record["architecture"]["registers"] == 2
    assert record["prefix"] == 3
