"""What the name of a model tells is told before torch is imported and anything is downloaded."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from attnviz.models import load
from attnviz.models.stated import depth_of
from attnviz.models.weights.header import check_checkpoint
from attnviz.runs import compare, evaluate, evolve, explore
from tests.helpers.photos import save_scene


@pytest.fixture
def no_weights(real, tmp_path, monkeypatch):
    """The command line with a photo, where no model may be loaded."""
    # The modules with a name for the function are imported before, or they would keep this one.
    for module in (load, compare, evaluate, evolve, explore):
        monkeypatch.setattr(
            module, "load_backbone", lambda _request: pytest.fail("a model was loaded")
        )
    save_scene(tmp_path / "a.png", 40, 40)
    save_scene(tmp_path / "masks" / "a.png", 40, 40)
    return real


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("heads", "--model", "dinov2_vitg14", "--layer", "45"), "layer 45 does not exist"),
        (("heads", "--layer", "12"), "layer 12 does not exist: dino_vits8 has layers 0 to 11"),
        (("layers", "--heads", "6"), "head 6 does not exist"),
        (("rollout", "--start-layer", "-13"), "layer -13 does not exist"),
        (("score", "--model-arg", "depth=3", "--layer", "3"), "has layers 0 to 2"),
        (("features", "--layer", "12"), "layer 12 does not exist"),
        (("qkv", "--size", "30", "--fit", "pad"), "size 30 is not a multiple of the patch size 8"),
        (("patch", "--size", "7"), "size 7 is smaller than one patch of 8"),
        (("relevance", "--class", "0"), "dino_vits8 has no classifier"),
        (("heads", "--width", "1"), "--width: 1 is out of range"),
        (("compare", "--show", "head:6"), "--show head:6: dino_vits8 has heads 0 to 5"),
        (("explore", "--layers", "12"), "layer 12 does not exist"),
    ],
)  # fmt: skip
def test_an_option_that_the_named_model_cannot_honour(no_weights, arguments, message):
    command, *options = arguments
    run = no_weights(command, "a.png", *options)
    assert (run.code, run.out) == (2, "")
    assert message in run.err.splitlines()[0]


@pytest.fixture
def bad_weights(tmp_path):
    """Files that are no weights of a ViT, by what is wrong with them."""
    (tmp_path / "notes.pth").write_text("not a checkpoint\n", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    network = torch.nn.Conv2d(3, 4, 3).state_dict()
    torch.save({"state_dict": network, "epoch": 3}, tmp_path / "cnn.pth")
    save_file(network, tmp_path / "cnn.safetensors")
    whole = (tmp_path / "cnn.pth").read_bytes()
    (tmp_path / "cut.pth").write_bytes(whole[: len(whole) // 2])
    vit = {"teacher": {"backbone.patch_embed.proj.weight": torch.zeros(1)}}
    torch.save(vit, tmp_path / "vit.pth")


@pytest.mark.usefixtures("bad_weights")
@pytest.mark.parametrize("command", ["heads", "compare", "explore"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.pth",), "missing.pth does not exist"),
        (("folder",), "folder is a folder without config.json"),
        (("notes.pth",), "notes.pth is a text file, not a checkpoint"),
        (("cut.pth",), "cut.pth is cut off or damaged"),
        (("cnn.pth",), "cnn.pth is in no known layout of a Vision Transformer: 0 of its 2 tensors"),
        (("cnn.safetensors",), "cnn.safetensors is in no known layout of a Vision Transformer"),
        (("vit.pth", "--checkpoint-key", "student"), "vit.pth has no network under 'student'"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_weights_whose_header_shows_that_they_cannot_be_loaded(
    no_weights, command, arguments, message
):
    out = ("--out", "page.html") if command == "explore" else ()
    run = no_weights(command, "a.png", "--checkpoint", *arguments, *out)
    assert run.code in (1, 2)
    assert run.out == ""
    assert message in run.err.splitlines()[0]


@pytest.mark.usefixtures("bad_weights")
def test_what_the_header_does_not_tell_is_left_to_the_loading(tmp_path):
    check_checkpoint(tmp_path / "vit.pth")
    loop: dict[str, object] = {"patch_embed.proj.weight": torch.zeros(1)}
    loop["itself"] = loop
    torch.save(loop, tmp_path / "loop.pth")
    torch.save(vars(torch.nn.Conv2d(3, 4, 3)), tmp_path / "objects.pth")
    torch.save({"w": torch.zeros(1)}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for name in ("loop.pth", "objects.pth", "old.pth"):
        check_checkpoint(tmp_path / name)


def test_eval_asks_before_too(no_weights):
    run = no_weights("eval", "a.png", "masks", "--layer", "12")
    assert run.code == 2
    assert "layer 12 does not exist" in run.err


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("away.pth", None, 2, "away.pth does not exist"),
        ("notes.pth", b"how the weights were made\n", 1, "notes.pth is a text file"),
        ("page.bin", b"<!DOCTYPE html><html>", 1, "page.bin is a web page"),
        ("empty.safetensors", b"", 1, "empty.safetensors is empty"),
    ],
)
def test_a_checkpoint_that_is_none(no_weights, tmp_path, name, content, code, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    run = no_weights("heads", "a.png", "--checkpoint", name)
    assert (run.code, run.out) == (code, "")
    assert message in run.err.splitlines()[0]


def test_a_layer_that_a_safetensors_header_does_not_list(no_weights, tmp_path):
    names = ["cls_token", "patch_embed.proj.weight", "norm.weight"]
    names += [f"blocks.{block}.norm1.weight" for block in range(3)]
    header = {name: {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} for name in names}
    text = json.dumps(header).encode()
    (tmp_path / "w.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
    run = no_weights("heads", "a.png", "--checkpoint", "w.safetensors", "--layer", "3")
    assert run.code == 2
    assert "layer 3 does not exist: w.safetensors has layers 0 to 2" in run.err


@pytest.mark.parametrize(
    ("command", "option", "value", "message"),
    [
        ("heads", "--layer", "4", "layer 4 does not exist: vit has layers 0 to 3"),
        ("layers", "--heads", "2", "head 2 does not exist: vit has heads 0 to 1"),
        ("qkv", "--size", "30", "size 30 is not a multiple of the patch size 8"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_what_a_config_states(no_weights, tmp_path, command, option, value, message, nested):
    sizes = {"num_hidden_layers": 4, "num_attention_heads": 2, "patch_size": 8}
    config = {"model_type": "clip", "vision_config": sizes} if nested else sizes
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "config.json").write_text(json.dumps({"model_type": "dinov2"} | config))
    (tmp_path / "vit" / "model.safetensors").write_bytes(bytes(8) + b"{}")
    run = no_weights(command, "a.png", "--checkpoint", "vit", option, value, "--fit", "pad")
    assert run.code == 2
    assert message in run.err


@pytest.mark.parametrize(
    ("names", "depth"),
    [
        (["blocks.0.a", "blocks.11.a"], 12),
        (["module.teacher.blocks.0.0.a", "module.teacher.blocks.1.5.a"], 6),
        (["encoder.layer.3.mlp.layers.7.a"], 4),
        (["student.blocks.2.a", "teacher.blocks.2.a"], 3),
        (["blocks.2.a", "decoder_blocks.1.a"], None),
        (["head.weight"], None),
    ],
)
def test_depth_by_the_names_of_tensors(names, depth):
    assert depth_of(names) == depth


@pytest.mark.parametrize("more", [(), ("--list",), ("--check",)])
def test_a_figure_set_is_checked_whole_before_its_first_figure(no_weights, tmp_path, more):
    (tmp_path / "set.toml").write_text(
        '[defaults]\nmodel = "demo"\n\n[[figure]]\ncommand = "heads"\nimages = "a.png"\n\n'
        '[[figure]]\ncommand = "rollout"\nimages = "a.png"\n\n'
        '[[figure]]\ncommand = "qkv"\nimages = "a.png"\nlayer = 9\n',
        encoding="utf-8",
    )
    run = no_weights("render", "set.toml", *more)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("error: set.toml:15: layer 9 does not exist: demo has layers 0 to 5")
    assert not (tmp_path / "attnviz-out").exists()
