"""Files that are no checkpoint, damaged files, and pickles that want more than to be data."""

from __future__ import annotations

import argparse
import os
import pathlib
import pickle
import random
import re
import warnings
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
        (b"\x89HDF\r\n\x1a\n" + bytes(600), "not a PyTorch checkpoint"),
        (bytes(range(256)) * 8, "checkpoint"),
        (b"\x80\x02}q\x00(", "checkpoint"),
        (b"PK\x03\x04" + bytes(900), "cut off or damaged"),
    ],
)
def test_what_is_no_checkpoint_is_named(tmp_path, content, reason):
    path = tmp_path / "weights.pth"
    path.write_bytes(content)
    assert reason in refusal(path)


def test_a_file_of_which_too_little_is_left_is_cut_off_or_damaged(tmp_path):
    path = save(tmp_path / "weights.pth", original())
    path.write_bytes(path.read_bytes()[:200])
    assert "cut off or damaged" in refusal(path)


def needed(tensors):
    """The bytes of the tensors alone, which is a little less than those of the file."""
    return sum(tensor.nbytes for tensor in tensors.values())


@pytest.mark.parametrize("share", [0.3, 0.95])
def test_a_truncated_file_says_how_many_bytes_are_there_of_how_many(tmp_path, share):
    """The list of tensors comes first in the file, in the old form as in the new one."""
    content = {name: tensor.half() for name, tensor in original().items()} | {"x": torch.zeros(9)}
    for legacy in (False, True):
        path = tmp_path / "weights.pth"
        torch.save(content, path, _use_new_zipfile_serialization=not legacy)
        whole = path.stat().st_size
        have = int(whole * share)
        path.write_bytes(path.read_bytes()[:have])
        match = re.search(r"is cut off: ([\d,]+) of at least ([\d,]+) bytes", refusal(path))
        stated = [int(number.replace(",", "")) for number in match.groups()]
        assert stated[0] == have
        assert needed(content) < stated[1] <= whole


def test_a_truncated_safetensors_file_says_how_many_bytes_are_there_of_how_many(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(original(), path)
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    assert f"cut off: {len(content) - 100:,} of {len(content):,} bytes" in refusal(path)
    header = 8 + int.from_bytes(content[:8], "little")
    path.write_bytes(content[:300])
    assert f"cut off: 300 of at least {header:,} bytes" in refusal(path)
    path.write_bytes(content[:20] + b"\xff" + content[21:])
    assert "damaged safetensors" in refusal(path)


def test_a_git_lfs_pointer_says_how_large_the_weights_are(tmp_path):
    path = tmp_path / "weights.pth"
    path.write_bytes(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 86709583\n"
    )
    assert "pointer, not the weights of 86,709,583 bytes" in refusal(path)


def test_a_torchscript_program_is_named_as_one(tmp_path):
    """torch's own advice, to switch its safety off, is never repeated."""
    path = tmp_path / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(nn.Linear(2, 2)).save(str(path))
    said = refusal(path)
    assert "is a TorchScript program, not weights" in said
    assert "load it with torch.jit.load and save its state_dict()" in said
    assert "weights_only" not in said


def test_an_exported_program_is_named_as_one(tmp_path):
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/archive_format", "pt2")
        archive.writestr("model/data/weights/weight_0", "x")
    assert "is an exported program, not weights" in refusal(path)
    assert "torch.export.load" in refusal(path)


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
    with pytest.raises(UsageError, match="not a regular file"):
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


HISTORIES = {
    "numbers": np.array([0.1, 0.2]),
    "big endian": np.arange(3, dtype=">i4"),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "truth": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "text": np.array(["a", "bc"]),
    "objects": np.array([None, {"a": 1}], dtype=object),
    "records": np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "times": np.array(["2026-01-01"], dtype="datetime64[D]"),
    "nothing": np.zeros((0, 4)),
    "dtype": np.dtype("float32"),
}


@pytest.mark.parametrize("kind", HISTORIES)
@pytest.mark.parametrize("legacy", [False, True])
def test_numpy_arrays_beside_the_weights_are_read(tmp_path, kind, legacy):
    path = tmp_path / "weights.pth"
    content = {"state_dict": original(), "history": HISTORIES[kind]}
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    checkpoint = open_checkpoint(path)
    assert checkpoint.key == "state_dict"
    read = read_weights(path)["history"]
    if kind in ("numbers", "big endian", "columns first", "truth", "complex", "nothing"):
        assert np.array_equal(read.numpy(), HISTORIES[kind])


def test_the_random_states_of_a_training_run_are_read(tmp_path):
    state = np.random.RandomState(0)
    content = {
        "teacher": original(),
        "rng": {
            "numpy": state.get_state(),
            "numpy, by name": state.get_state(legacy=False),
            "generator": np.random.default_rng(0).bit_generator.state,
            "python": random.getstate(),
            "torch": torch.get_rng_state(),
        },
    }
    assert open_checkpoint(save(tmp_path / "weights.pth", content)).key == "teacher"


def test_a_network_of_numpy_arrays_is_a_network(tmp_path):
    content = {"model": {name: tensor.numpy() for name, tensor in original().items()}}
    checkpoint = open_checkpoint(save(tmp_path / "weights.pth", content))
    for name, tensor in original().items():
        assert torch.equal(checkpoint.tensors[name], tensor), name


class Array:
    """A pickle that says of an array what is not so."""

    def __init__(self, *state):
        self.state = state

    def __reduce__(self):
        function, arguments, _ = np.zeros(1).__reduce__()
        return function, arguments, self.state


@pytest.mark.parametrize(
    "state",
    [
        (1, (1 << 40,), np.dtype("f8"), False, b"\0" * 8),
        (1, (2,), np.dtype("O"), False, b"\1" * 16),
        (1, (-3,), np.dtype("f8"), False, b"\0" * 8),
        (1, "x", np.dtype("f8"), False, 3.5),
        (1,),
    ],
)
def test_an_array_that_does_not_fit_its_bytes_is_left_out(tmp_path, state):
    """Bytes are never taken for pointers, nor sizes for memory."""
    path = save(tmp_path / "weights.pth", {"model": original(), "history": Array(*state)})
    assert read_weights(path)["history"] is None
    assert open_checkpoint(path).key == "model"


def test_a_pickle_that_holds_itself_is_refused(tmp_path):
    content = dict(original())
    content["again"] = content
    assert "nested without end" in refusal(save(tmp_path / "weights.pth", content))


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
