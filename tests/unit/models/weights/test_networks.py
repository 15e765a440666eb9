"""Which network is taken out of a nested file, and what happens when there is none."""

from __future__ import annotations

import pytest
import torch

from attnviz.errors import CheckpointError
from attnviz.models.weights.checkpoint import open_checkpoint
from tests.helpers.checkpoints import chunked, original, prefixed, save

TEACHER, STUDENT = original(), original(seed=1)


def opened(tmp_path, content, key=None):
    return open_checkpoint(save(tmp_path / "weights.pth", content), key)


def same(tensors, expected):
    return tensors.keys() == expected.keys() and all(
        torch.equal(tensors[name], expected[name]) for name in expected
    )


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (TEACHER, None),
        ({"state_dict": TEACHER}, "state_dict"),
        ({"model": TEACHER, "epoch": 3}, "model"),
        ({"model": prefixed("module.", TEACHER)}, "model"),
        (prefixed("module.", TEACHER), None),
        (prefixed("_orig_mod.module.backbone.", TEACHER), None),
        (prefixed("module.base_encoder.", TEACHER), None),
        (prefixed("visual.trunk.", TEACHER), None),
        ({"teacher": TEACHER, "student": STUDENT}, "teacher"),
        ({"student": STUDENT, "teacher": prefixed("module.backbone.", TEACHER)}, "teacher"),
        ({"model": prefixed("teacher.backbone.", TEACHER)
          | prefixed("student.backbone.", STUDENT)}, "teacher"),
        ({"state_dict": STUDENT, "state_dict_ema": TEACHER}, "state_dict_ema"),
        ({"model": STUDENT, "model_ema": TEACHER}, "model_ema"),
        ({"model": STUDENT, "model_ema": prefixed("module.", TEACHER)}, "model_ema"),
        ({"student": TEACHER}, "student"),
        ({"state_dict": prefixed("model.encoder.", STUDENT)
          | prefixed("model.momentum_encoder.", TEACHER)}, "momentum_encoder"),
    ],
)  # fmt: skip
def test_the_averaged_network_is_found_under_any_wrapping(tmp_path, content, key):
    checkpoint = opened(tmp_path, content)
    assert same(checkpoint.tensors, TEACHER)
    assert checkpoint.key == key


def test_wrappers_inside_a_name_are_taken_out(tmp_path):
    inside = {
        name.replace("blocks.1.", "blocks.1._checkpoint_wrapped_module._orig_mod."): tensor
        for name, tensor in TEACHER.items()
    }
    assert any("_orig_mod" in name for name in inside)
    assert same(opened(tmp_path, prefixed("_fsdp_wrapped_module.", inside)).tensors, TEACHER)


def test_the_key_takes_the_student(tmp_path):
    head = {"head.mlp.0.weight": torch.eye(2)}
    content = {
        "student": prefixed("module.backbone.", STUDENT) | prefixed("module.", head),
        "teacher": prefixed("backbone.", TEACHER) | head,
        "optimizer": {"state": {}, "param_groups": []},
        "epoch": 7,
    }
    assert same(opened(tmp_path, content).tensors, TEACHER)
    taken = opened(tmp_path, content, "student")
    assert same(taken.tensors, STUDENT)
    assert taken.key == "student"
    assert same(opened(tmp_path, content, "teacher").tensors, TEACHER)


def test_an_absent_key_lists_the_keys_that_are_there(tmp_path):
    content = {"student": STUDENT, "teacher": TEACHER, "epoch": 7}
    with pytest.raises(CheckpointError) as caught:
        opened(tmp_path, content, "ema")
    assert "no network under 'ema'" in caught.value.message
    assert "student, teacher" in caught.value.message
    assert "--checkpoint-key" in caught.value.hint


def test_a_key_for_a_flat_file_says_that_it_is_flat(tmp_path):
    with pytest.raises(CheckpointError, match="no network under 'teacher'") as caught:
        opened(tmp_path, TEACHER, "teacher")
    assert "leave --checkpoint-key out" in caught.value.hint


def test_two_networks_of_equal_standing_are_not_guessed_between(tmp_path):
    content = {"encoder": TEACHER, "model": STUDENT}
    with pytest.raises(CheckpointError, match="holds 2 networks") as caught:
        opened(tmp_path, content)
    assert "encoder, model" in caught.value.message
    assert same(opened(tmp_path, content, "model").tensors, STUDENT)


def test_an_unknown_prefix_matches_nothing_unless_it_is_asked_for(tmp_path):
    content = prefixed("foo.", TEACHER)
    with pytest.raises(CheckpointError) as caught:
        opened(tmp_path, content)
    total = len(TEACHER)
    assert f"0 of {total} tensors matched, first missing: cls_token" in caught.value.message
    assert "'foo.'" in caught.value.message
    assert same(opened(tmp_path, content, "foo").tensors, TEACHER)


def test_another_kind_of_network_is_no_vision_transformer(tmp_path):
    resnet = {"conv1.weight": torch.zeros(8, 3, 7, 7), "bn1.weight": torch.zeros(8),
              "layer1.0.conv1.weight": torch.zeros(8, 8, 1, 1)}  # fmt: skip
    with pytest.raises(CheckpointError) as caught:
        opened(tmp_path, resnet)
    assert (
        "in no known layout of a Vision Transformer: 0 of its 3 tensors matched"
        in caught.value.message
    )
    assert "conv1.weight" in caught.value.message


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_chunked_names_carry_the_block_in_their_second_number(tmp_path, size):
    names = chunked(TEACHER, size)
    assert f"blocks.{3 // size}.3.norm1.weight" in names
    assert same(opened(tmp_path, names).tensors, TEACHER)


def test_a_dinov2_teacher_checkpoint_with_chunks_and_heads(tmp_path):
    teacher = original("dinov2", registers=4)
    heads = {"dino_head.mlp.0.weight": torch.eye(3), "ibot_head.mlp.0.weight": torch.eye(3)}
    content = {"teacher": prefixed("backbone.", chunked(teacher, 2)) | heads}
    nested = opened(tmp_path, content)
    flat = open_checkpoint(save(tmp_path / "flat.pth", teacher))
    assert same(nested.tensors, flat.tensors)
    assert nested.key == "teacher"
    assert nested.source == flat.source == "dinov2"


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_float_types_are_kept_until_they_are_loaded(tmp_path, kind):
    checkpoint = opened(tmp_path, {name: tensor.to(kind) for name, tensor in TEACHER.items()})
    assert checkpoint.tensors["pos_embed"].dtype is kind


def test_the_hash_is_of_the_file(tmp_path):
    import hashlib

    checkpoint = opened(tmp_path, TEACHER)
    assert checkpoint.sha256 == hashlib.sha256(checkpoint.path.read_bytes()).hexdigest()
    other = open_checkpoint(save(tmp_path / "other.pth", STUDENT))
    assert other.sha256 != checkpoint.sha256
