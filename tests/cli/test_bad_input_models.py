"""Models and checkpoints that cannot be used: one clear line, and no figure of wrong weights."""

from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.cli.test_bad_input import the_error
from tests.helpers import checkpoints, kinds
from tests.helpers.command_line import arrays, files_below
from tests.helpers.photos import save_scene

HEADS = ("--model-arg", "heads=2", "--dpi", "30")


@pytest.fixture
def photo(tmp_path):
    return save_scene(tmp_path / "photo.png", 40, 40)


@pytest.fixture
def refused(real, photo, tmp_path):
    """The one error line of a run that must come to nothing, and its hint."""

    def call(*arguments, code=1, command="heads"):
        run = real(command, photo, *arguments, "--out", "o")
        assert (run.code, run.out) == (code, "")
        assert files_below(tmp_path / "o") == []
        line = the_error(run)
        assert line.startswith("error: ")
        assert len(run.err.splitlines()) <= 2
        return line, run.err.removeprefix(line).strip()

    return call


# --- models ------------------------------------------------------------------------------------


def test_an_unknown_name_shows_near_matches(refused):
    line, hint = refused("--model", "dino_vits9", code=2)
    assert "dino_vits9" in line
    assert "dino_vits8" in line + hint


@pytest.mark.parametrize("name", ["resnet50", "swin_tiny_patch4_window7_224"])
@pytest.mark.parametrize("command", ["heads", "rollout"])
def test_a_model_that_is_no_plain_vit(refused, name, command):
    line, hint = refused("--model", name, "--random-weights", code=2, command=command)
    assert f"{name} is not supported" in line
    assert "DINO" in hint


@pytest.mark.parametrize("command", kinds.OF_CLS)
def test_a_model_without_a_class_token(refused, command):
    line, hint = refused("--model", "test_vit2", "--random-weights", code=2, command=command)
    assert "no CLS token" in line
    assert "patch" in hint


def test_a_model_without_a_class_token_has_patch_rows(real, photo, tmp_path):
    """One register before the patches: query and map skip it, not a CLS token."""
    run = real(
        "patch",
        photo,
        "--model",
        "test_vit2",
        "--random-weights",
        "--at",
        "0,0",
        "--at",
        "1,3",
        "--size",
        "64x80",
        "--fit",
        "squash",
        "--save-data",
        "--out",
        "o",
        "--dpi",
        "30",
    )
    assert run.code == 0, run.err
    saved = arrays(tmp_path / "o" / "photo.patch.npz")
    assert saved["prefix"].shape[-1] == 1
    assert saved["attention"].shape[-2:] == (4, 5)
    assert saved["cells"].tolist() == [[0, 0], [1, 3]]


@pytest.mark.parametrize("argument", ["depht=3", "depth=0", "heads=5"])
def test_sizes_that_cannot_be_built(refused, argument):
    line, _ = refused(
        "--model", "vit_tiny_patch16_224", "--random-weights", "--model-arg", argument, code=2
    )
    assert argument.split("=")[0] in line or "heads" in line


def test_a_device_that_is_not_here(refused):
    if torch.cuda.device_count() > 99:
        pytest.skip("it is here")
    line, hint = refused("--random-weights", "--device", "cuda:99", code=2)
    assert "cuda:99" in line
    assert "cpu" in hint


@pytest.mark.parametrize(
    "hub",
    [
        "offline by setting",
        pytest.param("silent", marks=pytest.mark.slow(reason="waits for a hub that never answers")),
    ],
)
def test_a_named_model_without_network_ends_soon(torch_server, photo, tmp_path, hub):
    """A hub that takes the connection and never answers is the worst case: its client waits on."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        setting = {
            "offline by setting": {"HF_HUB_OFFLINE": "1"},
            "silent": {"HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}"},
        }[hub]
        dropped = {name: None for name in os.environ if name.lower().endswith("_proxy")}
        begun = time.monotonic()
        run = torch_server.run(
            "heads", photo, "--out", tmp_path / "o",
            environment=dropped | {"HF_HOME": str(tmp_path / "hub")} | setting,
        )  # fmt: skip
        seconds = time.monotonic() - begun
    # On a busy machine imports alone take seconds.
    assert seconds < 10 + import_seconds(torch_server)
    assert (run.returncode, run.stdout) == (1, "")
    line, hint = run.stderr.splitlines()
    assert line.startswith("error: cannot download the weights of dino_vits8: ")
    assert "--checkpoint" in hint
    assert files_below(tmp_path / "o") == []


def import_seconds(server) -> float:
    begun = time.monotonic()
    assert server.run(source="import attnviz.engines.local").returncode == 0
    return time.monotonic() - begun


# --- checkpoints -------------------------------------------------------------------------------


def test_a_checkpoint_that_is_not_there(refused, tmp_path):
    line, _ = refused("--checkpoint", "nope.pth", code=2)
    assert line == "error: --checkpoint: nope.pth does not exist"
    (tmp_path / "folder").mkdir()
    line, _ = refused("--checkpoint", "folder", code=2)
    assert "folder" in line
    assert "config.json" in line


def test_a_checkpoint_excludes_random_weights(refused, tiny_weights):
    line, _ = refused("--checkpoint", tiny_weights, "--random-weights", code=2)
    assert "--random-weights" in line
    assert "--checkpoint" in line


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.pth", b""),
        ("text.pth", b"these are no weights\n"),
        ("page.pth", b"<!DOCTYPE html><html></html>"),
        ("pointer.safetensors", b"version https://git-lfs.github.com/spec/v1\n"),
        ("noise.pth", bytes(range(256)) * 8),
        ("noise.safetensors", bytes(range(256)) * 8),
    ],
)
def test_what_is_no_checkpoint(refused, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    line, _ = refused("--checkpoint", name)
    assert name in line


def test_a_checkpoint_that_is_cut_off(refused, tmp_path, tiny_weights):
    whole = tiny_weights.read_bytes()
    (tmp_path / "cut.pth").write_bytes(whole[: len(whole) // 2])
    line, _ = refused("--checkpoint", "cut.pth")
    assert "cut.pth" in line
    assert "cut off" in line


def saved(tmp_path, content, name="own.pth") -> Path:
    return checkpoints.save(tmp_path / name, content)


def test_another_patch_size(refused, tmp_path):
    own = saved(tmp_path, checkpoints.original(patch=16, width=384, depth=12))
    line, _ = refused("--checkpoint", own, "--model", "dino_vits8")
    assert "patch size 16 in the weights, 8 in dino_vits8" in line


def test_another_depth(refused, tmp_path):
    own = saved(tmp_path, checkpoints.original(width=384, depth=3))
    line, _ = refused("--checkpoint", own, "--model", "dino_vits8")
    assert "depth 3 in the weights, 12 in dino_vits8" in line


def test_another_width(refused, tmp_path):
    own = saved(tmp_path, checkpoints.original(width=192, depth=12))
    line, _ = refused("--checkpoint", own, "--model", "dino_vits8")
    assert "width 192 in the weights, 384 in dino_vits8" in line


def test_another_register_count(refused, tmp_path):
    own = saved(
        tmp_path, checkpoints.original("dinov2", registers=3, width=384, depth=12, patch=14)
    )
    line, _ = refused("--checkpoint", own, "--model", "dinov2_vits14_reg")
    assert "register tokens 3 in the weights, 4 in dinov2_vits14_reg" in line
    line, _ = refused("--checkpoint", own, "--model", "dinov2_vits14")
    assert "register tokens 3 in the weights, 0 in dinov2_vits14" in line


def test_kernels_of_another_channel_count(refused, tmp_path):
    tensors = checkpoints.original()
    tensors["patch_embed.proj.weight"] = tensors["patch_embed.proj.weight"][:, :1]
    line, _ = refused("--checkpoint", saved(tmp_path, tensors), *HEADS)
    assert "input channels 1 in the weights, 3 in" in line


def test_the_head_count_is_asked_for_never_guessed(refused, tmp_path):
    line, hint = refused("--checkpoint", saved(tmp_path, checkpoints.original()))
    assert "heads" in line
    assert "--model-arg heads=N" in hint


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tensors: checkpoints.prefixed("foo.", tensors), "foo."),
        (lambda tensors: dict(list(tensors.items())[::2]), ""),
        (lambda tensors: {n: t for n, t in tensors.items() if not n.startswith("blocks.2.")}, ""),
        (lambda tensors: {n: t for n, t in tensors.items() if n != "norm.bias"}, "norm.bias"),
        (lambda tensors: tensors | {"blocks.1.attn.relative": torch.zeros(3)}, "attn.relative"),
        (lambda _: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).state_dict(), ""),
        (lambda _: {}, ""),
    ],
    ids=["prefixed", "half", "no-block-2", "no-last-bias", "one-more", "convolutions", "nothing"],
)
def test_weights_that_match_in_part_or_not_at_all(refused, tmp_path, change, reason):
    own = saved(tmp_path, change(checkpoints.original()))
    line, _ = refused("--checkpoint", own, *HEADS)
    assert "own.pth" in line
    assert reason in line


def test_a_missing_block_for_a_named_model_is_counted(refused, tmp_path):
    tensors = checkpoints.original(width=384, depth=12)
    own = saved(tmp_path, {n: t for n, t in tensors.items() if not n.startswith("blocks.7.")})
    line, _ = refused("--checkpoint", own, "--model", "dino_vits8")
    assert "own.pth" in line
    assert "blocks.7." in line or "block 7" in line


class RunsCode:
    """A pickle that asks for a file to be made."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_wants_to_run_code_is_refused_and_does_not_run(refused, tmp_path, legacy):
    marker = tmp_path / "it-ran"
    content = {"teacher": checkpoints.original(), "args": RunsCode(marker)}
    torch.save(content, tmp_path / "evil.pth", _use_new_zipfile_serialization=not legacy)
    line, hint = refused("--checkpoint", "evil.pth", *HEADS)
    assert not marker.exists()
    assert "evil.pth wants to run or build " in line
    assert "mkdir" in line
    assert "nothing in a checkpoint is executed" in hint


def test_a_whole_module_is_refused(refused, tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "module.pth")
    line, _ = refused("--checkpoint", "module.pth", *HEADS)
    assert "Linear" in line


def test_training_checkpoints_take_the_teacher_and_name_it(real, photo, tmp_path):
    nets = {name: checkpoints.prefixed("module.backbone.", checkpoints.original(seed=seed))
            for name, seed in (("student", 1), ("teacher", 2))}  # fmt: skip
    for net in nets.values():
        net["module.head.last_layer.weight"] = torch.zeros(3, 3)
    content = nets | {"optimizer": {"state": {}}, "epoch": 3, "args": argparse.Namespace(lr=0.1)}
    saved(tmp_path, content)
    saved(tmp_path, checkpoints.original(seed=2), "teacher-alone.pth")
    saved(tmp_path, checkpoints.original(seed=1), "student-alone.pth")
    found = {}
    for out, options in {
        "default": ["own.pth"],
        "student": ["own.pth", "--checkpoint-key", "student"],
        "teacher-alone": ["teacher-alone.pth"],
        "student-alone": ["student-alone.pth"],
    }.items():
        run = real("heads", photo, "--checkpoint", *options, *HEADS, "--save-data", "--out", out)
        assert run.code == 0, run.err
        found[out] = run, arrays(tmp_path / out / "photo.heads.npz")["attention"]
    assert (found["default"][1] == found["teacher-alone"][1]).all()
    assert (found["student"][1] == found["student-alone"][1]).all()
    assert (found["default"][1] != found["student"][1]).any()
    assert "own.pth (teacher)" in found["default"][0].err
    assert "own.pth (student)" in found["student"][0].err


def test_an_absent_key_lists_those_that_are_there(refused, tmp_path):
    own = saved(tmp_path, {"student": checkpoints.original(), "teacher": checkpoints.original()})
    line, hint = refused("--checkpoint", own, "--checkpoint-key", "ema", *HEADS)
    assert "ema" in line
    assert "student" in line + hint
    assert "teacher" in line + hint


def test_a_key_without_a_checkpoint(refused):
    line, _ = refused("--checkpoint-key", "teacher", code=2)
    assert "--checkpoint-key needs --checkpoint" in line
