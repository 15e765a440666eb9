"""Files that are no checkpoint, damaged files, and pickles that want more than to be data."""

from __future__ import annotations

import argparse
import os
import pathlib
import pickle
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from attnviz.errors import CheckpointError, UsageError
from attnviz.models.weights.checkpoint import open_checkpoint
from attnviz.models.weights.file import read_weights
from tests.helpers.checkpoints import original, save


def refusal(path):
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    message = caught.value.message
    assert str(path) in message
    assert "\n" not in message
    return message + " | " + caught.value.hint


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"just some notes\n", "text file"),
        ("Größe der Gewichte: 384 \u4e2d".encode() * 40, "text file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 86\n", "Git LFS"),
        (b"\n<!DOCTYPE html><html><body>403</body></html>", "web page"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "web page"),
        (b"\x89HDF\r\n\x1a\n" + bytes(600), "no PyTorch checkpoint"),
        (bytes(range(256)) * 8, "checkpoint"),
        (b"\x80\x02}q\x00(", "checkpoint"),
        (b"PK\x03\x04" + bytes(900), "cut off or damaged"),
    ],
)
def test_what_is_no_checkpoint_is_named(tmp_path, content, reason):
    path = tmp_path / "weights.pth"
    path.write_bytes(content)
    assert reason in refusal(path)


def test_a_truncated_file_is_cut_off(tmp_path):
    path = save(tmp_path / "weights.pth", original())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "cut off or damaged" in refusal(path)


def test_a_truncated_safetensors_file_is_damaged(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(original(), path)
    path.write_bytes(path.read_bytes()[:-100])
    assert "damaged safetensors" in refusal(path)


def test_safetensors_is_known_by_content_whatever_its_name(tmp_path):
    path = tmp_path / "weights.bin"
    save_file(original(), path)
    assert read_weights(path).keys() == original().keys()


def test_other_archives_are_named(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, a=np.zeros(3))
    assert "numpy archive" in refusal(path)
    with zipfile.ZipFile(tmp_path / "weights.zip", "w") as archive:
        archive.writestr("readme.txt", "x")
    assert "zip archive" in refusal(tmp_path / "weights.zip")


@pytest.mark.parametrize("content", [torch.zeros(3), [torch.zeros(3)], 7, {}, {"epoch": 3}])
def test_data_without_named_tensors_is_refused(tmp_path, content):
    refusal(save(tmp_path / "weights.pth", content))


def test_a_missing_path_is_wrong_use(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        open_checkpoint(tmp_path / "nope.pth")


def test_what_is_no_file_or_cannot_be_opened_is_wrong_use(tmp_path):
    with pytest.raises(UsageError, match="no regular file"):
        open_checkpoint(pathlib.Path("/dev/zero"))
    with pytest.raises(UsageError, match="cannot be opened"):
        open_checkpoint(tmp_path / ("x" * 300))


def test_a_folder_needs_a_config_and_weights(tmp_path):
    with pytest.raises(UsageError, match="without config"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="no weights"):
        open_checkpoint(tmp_path)


class Marker:
    """Unpickling it without care creates a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


class Evaluator:
    def __reduce__(self):
        return eval, ("1 + 1",)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_runs_a_function_is_refused_and_does_not_run(tmp_path, legacy):
    marker = tmp_path / "marker"
    path = tmp_path / "weights.pth"
    torch.save(
        original() | {"extra": Marker(marker)}, path, _use_new_zipfile_serialization=not legacy
    )
    message = refusal(path)
    assert not marker.exists()
    assert "mkdir" in message
    assert "nothing in a checkpoint is executed" in message
    torch.load(path, weights_only=False)
    assert marker.exists(), "the file must be dangerous, or the test shows nothing"


def test_a_bare_pickle_that_runs_a_function_is_refused(tmp_path):
    path = tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps({"a": Evaluator()}))
    refusal(path)


def test_a_whole_module_is_refused_by_name(tmp_path):
    path = save(tmp_path / "weights.pth", nn.Linear(2, 2))
    assert "torch.nn.modules.linear.Linear" in refusal(path)


def test_training_options_are_read_as_data(tmp_path):
    content = {
        "teacher": {f"module.backbone.{name}": tensor for name, tensor in original().items()},
        "args": argparse.Namespace(arch="vit_small", out=pathlib.PosixPath("/x"), lr=5e-4),
        "epoch": np.int64(3),
        "loss": np.float32(2.5),
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]},
    }
    path = save(tmp_path / "weights.pth", content)
    loaded = read_weights(path)
    assert loaded["args"].arch == "vit_small"
    assert loaded["epoch"] == 3
    assert open_checkpoint(path).key == "teacher"


def test_the_permission_for_training_options_ends_with_the_call(tmp_path):
    path = save(tmp_path / "weights.pth", original() | {"args": argparse.Namespace(a=1)})
    read_weights(path)
    assert argparse.Namespace not in torch.serialization.get_safe_globals()
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=True)


def test_tensors_are_mapped_not_copied(tmp_path):
    path = save(tmp_path / "weights.pth", original())
    tensor = read_weights(path)["blocks.0.attn.qkv.weight"]
    maps = pathlib.Path("/proc/self/maps").read_text()
    address = tensor.untyped_storage().data_ptr()
    spans = [line.split()[0].split("-") for line in maps.splitlines() if line.endswith(str(path))]
    assert any(int(low, 16) <= address < int(high, 16) for low, high in spans)


def test_a_file_from_before_the_zip_format_is_read(tmp_path):
    path = tmp_path / "weights.pth"
    torch.save(original(), path, _use_new_zipfile_serialization=False)
    assert torch.equal(
        open_checkpoint(path).tensors["blocks.1.attn.qkv.weight"],
        original()["blocks.1.attn.qkv.weight"],
    )


def test_a_file_saved_from_a_gpu_is_read_onto_the_cpu(tmp_path):
    # The place of a tensor is stored as a string: write the one that a GPU run writes.
    path = tmp_path / "weights.pth"
    torch.save(original(), path)
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = next(member for member in members if member.endswith("data.pkl"))
    assert b"X\x03\x00\x00\x00cpu" in members[name]
    members[name] = members[name].replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    assert open_checkpoint(path).tensors["cls_token"].device.type == "cpu"
