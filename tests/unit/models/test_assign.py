"""All of the backbone or none: original layouts in timm modules, and what is refused."""

from __future__ import annotations

import math

import pytest
import timm
import torch
from safetensors.torch import save_file

from attnviz.errors import CheckpointError
from attnviz.models.assign import load_strictly
from attnviz.models.identify import check_against, identify
from attnviz.models.weights.checkpoint import open_checkpoint
from attnviz.models.weights.inferred import Source
from tests.helpers import formula_weights
from tests.helpers.checkpoints import (
    HEADS,
    attention_of,
    meta_dinov3,
    original,
    pixels,
    save,
    timm_model,
)

SIZES = {"name": "tiny", "patch": 8, "width": 64, "depth": 4, "heads": HEADS, "registers": 0,
         "has_cls": True}  # fmt: skip


def opened(tmp_path, content, name="weights.pth"):
    return open_checkpoint(save(tmp_path / name, content))


def dino(checkpoint, **more):
    return timm_model(checkpoint, "vit_small_patch8_224.dino", **more)


def dinov2(checkpoint, **more):
    name = (
        "vit_small_patch14_reg4_dinov2"
        if checkpoint.inferred.registers
        else "vit_small_patch14_dinov2"
    )
    return timm_model(checkpoint, name, **more)


def dinov3(checkpoint, **more):
    plus = "_plus" if checkpoint.inferred.gated_mlp else ""
    name = f"vit_small{plus}_patch16_dinov3"
    return timm_model(checkpoint, name, qkv_bias=checkpoint.inferred.qkv_bias, img_size=32, **more)


@pytest.mark.parametrize("name", ["dino_vits16", "dinov2_vits14_reg"])
def test_a_full_size_file_is_known_by_its_shapes_and_loads_whole(tmp_path, name):
    checkpoint = opened(tmp_path, formula_weights.state_dict(name))
    spec = identify(checkpoint)
    assert spec is not None
    assert spec.name == name
    module = timm.create_model(spec.timm_name, num_classes=0)
    count = load_strictly(module, checkpoint)
    assert count == len(module.state_dict()) == {"dino_vits16": 150}.get(name, 175)
    assert torch.equal(
        module.blocks[7].mlp.fc1.weight, checkpoint.tensors["blocks.7.mlp.fc1.weight"]
    )


def test_the_weights_are_used_where_they_are_mapped(tmp_path):
    checkpoint = opened(tmp_path, original())
    module = dino(checkpoint)
    load_strictly(module, checkpoint)
    name = "blocks.0.attn.qkv.weight"
    assert module.state_dict()[name].data_ptr() == checkpoint.tensors[name].data_ptr()


def test_registers_and_the_class_position_go_where_timm_has_them(tmp_path):
    tensors = original("dinov2", registers=4)
    checkpoint = opened(tmp_path, tensors)
    assert checkpoint.source is Source.DINOV2
    assert checkpoint.inferred.registers == 4
    assert checkpoint.inferred.positions_prefix == 0
    assert set(checkpoint.unused) == {"mask_token"}
    positions = tensors["pos_embed"]
    assert torch.equal(checkpoint.tensors["cls_token"], tensors["cls_token"] + positions[:, :1])
    assert torch.equal(checkpoint.tensors["pos_embed"], positions[:, 1:])
    module = dinov2(checkpoint)
    load_strictly(module, checkpoint)

    # By hand: CLS token with its position, registers without, patches with theirs.
    image = pixels(32, 32)
    patches = torch.nn.functional.conv2d(
        image, tensors["patch_embed.proj.weight"], tensors["patch_embed.proj.bias"], stride=8
    )
    tokens = torch.cat(
        [
            tensors["cls_token"] + positions[:, :1],
            tensors["register_tokens"],
            patches.flatten(2).transpose(1, 2) + positions[:, 1:],
        ],
        dim=1,
    )
    norm = torch.nn.functional.layer_norm(
        tokens, (64,), tensors["blocks.0.norm1.weight"], tensors["blocks.0.norm1.bias"], 1e-6
    )
    joined = norm @ tensors["blocks.0.attn.qkv.weight"].T + tensors["blocks.0.attn.qkv.bias"]
    query, key, _ = joined[0].reshape(21, 3, HEADS, 32).permute(1, 2, 0, 3)
    expected = (query @ key.transpose(1, 2) / math.sqrt(32)).softmax(-1)
    assert torch.allclose(attention_of(module, image)[0, 0], expected, atol=1e-6)


def test_packed_swiglu_of_the_giant_model(tmp_path):
    tensors = original("dinov2")
    for i in range(4):
        for kind, cut in (("weight", lambda t: t), ("bias", lambda t: t)):
            first = tensors.pop(f"blocks.{i}.mlp.fc1.{kind}")
            second = tensors.pop(f"blocks.{i}.mlp.fc2.{kind}")
            tensors[f"blocks.{i}.mlp.w12.{kind}"] = cut(first)
            tensors[f"blocks.{i}.mlp.w3.{kind}"] = (
                second[:, :128].clone() if kind == "weight" else second
            )
    checkpoint = opened(tmp_path, tensors)
    assert (checkpoint.inferred.gated_mlp, checkpoint.inferred.mlp_hidden) == (True, 128)
    module = timm_model(checkpoint, "vit_giant_patch14_dinov2", mlp_ratio=4)
    assert load_strictly(module, checkpoint) == len(module.state_dict())


def test_half_precision_files_become_float32(tmp_path):
    halves = {name: tensor.half() for name, tensor in original().items()}
    checkpoint = opened(tmp_path, halves)
    module = dino(checkpoint)
    load_strictly(module, checkpoint)
    assert {tensor.dtype for tensor in module.state_dict().values()} == {torch.float32}
    assert torch.equal(module.norm.weight, halves["norm.weight"].float())


def test_safetensors_and_pickle_give_one_network(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(original(), path)
    image = pixels(32, 32)
    maps = []
    for checkpoint in (open_checkpoint(path), opened(tmp_path, original())):
        module = dino(checkpoint)
        load_strictly(module, checkpoint)
        maps.append(attention_of(module, image))
    assert torch.equal(*maps)


def test_a_missing_block_stops_the_run(tmp_path):
    tensors = {n: t for n, t in original().items() if not n.startswith("blocks.2.")}
    checkpoint = opened(tmp_path, tensors)
    module = dino(checkpoint)
    before = module.blocks[0].attn.qkv.weight.clone()
    total = len(module.state_dict())
    expected = f"loaded {total - 12} of {total} tensors; first missing: blocks.2.norm1.weight"
    with pytest.raises(CheckpointError, match=expected):
        load_strictly(module, checkpoint)
    assert torch.equal(module.blocks[0].attn.qkv.weight, before)


def test_a_tensor_without_a_counterpart_stops_the_run(tmp_path):
    checkpoint = opened(tmp_path, original() | {"blocks.0.adapter.weight": torch.eye(2)})
    with pytest.raises(
        CheckpointError, match=r"no counterpart in the model.*blocks\.0\.adapter\.weight"
    ):
        load_strictly(dino(checkpoint), checkpoint)


@pytest.mark.parametrize(
    "name", ["head.weight", "dino_head.mlp.0.weight", "ibot_head.mlp.0.weight", "fc_norm.weight"]
)
def test_heads_are_unused_without_alarm(tmp_path, name):
    checkpoint = opened(tmp_path, original() | {name: torch.eye(2)})
    assert set(checkpoint.unused) == (set() if name == "fc_norm.weight" else {name})
    load_strictly(dino(checkpoint), checkpoint)


def test_quantised_weights_are_refused(tmp_path):
    tensors = original()
    tensors["norm.weight"] = tensors["norm.weight"].to(torch.int8)
    checkpoint = opened(tmp_path, tensors)
    with pytest.raises(CheckpointError, match="int8"):
        load_strictly(dino(checkpoint), checkpoint)


def test_another_stored_grid_is_not_resampled(tmp_path):
    checkpoint = opened(tmp_path, original())
    with pytest.raises(CheckpointError, match="pos_embed is 1x17x64 in the weights, 1x37x64"):
        load_strictly(dino(checkpoint, img_size=48), checkpoint)


@pytest.mark.parametrize(
    ("weights", "change", "message"),
    [
        ({"patch": 16}, {}, "patch size 16 in the weights, 8 in tiny"),
        ({"depth": 3}, {}, "depth 3 in the weights, 4 in tiny"),
        ({"width": 96}, {}, "width 96 in the weights, 64 in tiny"),
        ({"layout": "dinov2", "registers": 4}, {}, "register tokens 4 in the weights, 0 in tiny"),
        ({}, {"registers": 4}, "register tokens 0 in the weights, 4 in tiny"),
    ],
)
def test_another_model_is_told_with_both_numbers(tmp_path, weights, change, message):
    checkpoint = opened(tmp_path, original(**weights))
    with pytest.raises(CheckpointError, match=message) as caught:
        check_against(checkpoint, **(SIZES | change))
    assert str(checkpoint.path) in caught.value.message
    assert caught.value.hint


def test_kernels_of_one_channel_are_not_adapted(tmp_path):
    tensors = original()
    tensors["patch_embed.proj.weight"] = tensors["patch_embed.proj.weight"][:, :1].clone()
    checkpoint = opened(tmp_path, tensors)
    with pytest.raises(CheckpointError, match="input channels 1 in the weights, 3 in tiny"):
        check_against(checkpoint, **SIZES)


def test_the_same_model_passes(tmp_path):
    check_against(opened(tmp_path, original()), **SIZES)


def test_patch_16_weights_for_a_patch_8_model_name_the_right_model(tmp_path):
    checkpoint = opened(tmp_path, formula_weights.state_dict("dino_vits16"))
    with pytest.raises(CheckpointError, match="patch size 16 in the weights, 8 in dino_vits8") as c:
        check_against(checkpoint, name="dino_vits8", patch=8, width=384, depth=12, heads=6,
                      registers=0, has_cls=True)  # fmt: skip
    assert "--model dino_vits16" in c.value.hint


@pytest.mark.parametrize("name", ["mask_token", "masked_embed"])
def test_another_training_of_the_same_shapes_has_no_name(tmp_path, name):
    extra = {name: torch.zeros(1, 1, 384), "decoder_embed.weight": torch.eye(2)}
    checkpoint = opened(tmp_path, formula_weights.state_dict("dino_vits16") | extra)
    assert set(checkpoint.unused) == extra.keys()
    assert identify(checkpoint) is None


def test_a_supervised_model_of_the_same_shapes_has_no_name(tmp_path):
    tensors = formula_weights.state_dict("dino_vits16")
    checkpoint = opened(tmp_path, tensors | {"head.weight": torch.zeros(1000, 384)})
    assert checkpoint.source is Source.TIMM
    assert identify(checkpoint) is None


def test_two_files_of_one_model_are_told_apart(tmp_path):
    first, second = opened(tmp_path, original()), opened(tmp_path, original(seed=1), "300ep.pth")
    image, maps = pixels(32, 32), []
    for checkpoint in (first, second):
        module = dino(checkpoint)
        load_strictly(module, checkpoint)
        maps.append(attention_of(module, image))
    assert first.sha256 != second.sha256
    assert float((maps[0] - maps[1]).abs().max()) > 1e-2


@pytest.mark.parametrize("gated", [False, True])
def test_meta_dinov3_loads_with_its_own_rotation_periods(tmp_path, gated):
    tensors = meta_dinov3(gated=gated)
    checkpoint = opened(tmp_path, tensors)
    inferred = checkpoint.inferred
    assert checkpoint.source is Source.DINOV3
    assert (inferred.registers, inferred.heads, inferred.rotary, inferred.grid) == (
        4,
        HEADS,
        True,
        None,
    )
    assert inferred.qkv_bias is False
    module = dinov3(checkpoint)
    assert load_strictly(module, checkpoint) == len(module.state_dict())
    assert torch.equal(module.rope.periods, tensors["rope_embed.periods"].float())


def test_dinov3_biases_that_are_zero_load_with_and_without_a_counterpart(tmp_path):
    checkpoint = opened(tmp_path, meta_dinov3())
    assert not checkpoint.tensors["blocks.0.attn.q_bias"].any()
    image, maps = pixels(32, 32), []
    for name in ("vit_small_patch16_dinov3", "vit_small_patch16_dinov3_qkvb"):
        module = timm_model(checkpoint, name, img_size=32)
        assert load_strictly(module, checkpoint) == len(module.state_dict())
        maps.append(attention_of(module, image))
    assert torch.allclose(*maps, atol=1e-7)


def test_dinov3_biases_that_are_not_zero_are_kept(tmp_path):
    tensors = meta_dinov3(bias=0.7)
    checkpoint = opened(tmp_path, tensors)
    assert checkpoint.inferred.qkv_bias is True
    with pytest.raises(CheckpointError, match=r"no counterpart in the model.*q_bias"):
        load_strictly(timm_model(checkpoint, "vit_small_patch16_dinov3"), checkpoint)
    module = dinov3(checkpoint)
    load_strictly(module, checkpoint)
    query, _, value = tensors["blocks.1.attn.qkv.bias"].chunk(3)
    assert torch.equal(module.blocks[1].attn.q_bias, query)
    assert torch.equal(module.blocks[1].attn.v_bias, value)


def test_the_key_bias_is_masked_as_in_metas_code_or_honoured(tmp_path):
    masked = opened(tmp_path, meta_dinov3(bias=0.7, key_bias=0.7))
    free = opened(tmp_path, meta_dinov3(bias=0.7, key_bias=0.7, masked=False), "free.pth")
    without = opened(tmp_path, meta_dinov3(bias=0.7), "without.pth")
    modules = []
    for checkpoint in (masked, free):
        modules.append(dinov3(checkpoint))
        load_strictly(modules[-1], checkpoint)
    assert not modules[0].blocks[0].attn.k_bias.any()
    expected = meta_dinov3(bias=0.7, key_bias=0.7)["blocks.0.attn.qkv.bias"][64:128]
    assert torch.equal(modules[1].blocks[0].attn.k_bias, expected)
    image = pixels(32, 32)
    maps = [attention_of(module, image) for module in modules]
    assert float((maps[0] - maps[1]).abs().max()) > 1e-3
    assert not without.tensors["blocks.0.attn.k_bias"].any()


def test_a_mask_that_is_not_a_number_is_refused(tmp_path):
    tensors = meta_dinov3(bias=0.7)
    tensors["blocks.0.attn.qkv.bias_mask"] = torch.full((192,), float("nan"))
    with pytest.raises(CheckpointError, match="times its mask is not finite"):
        opened(tmp_path, tensors)


def test_other_rotation_periods_are_refused(tmp_path):
    tensors = meta_dinov3()
    tensors["rope_embed.periods"] = 10_000 ** (torch.arange(8) / 8)
    checkpoint = opened(tmp_path, tensors)
    with pytest.raises(CheckpointError, match=r"rotary periods 1 to 3162 \(8\)"):
        load_strictly(dinov3(checkpoint), checkpoint)


def test_positions_that_fit_no_square_are_refused(tmp_path):
    tensors = original()
    tensors["pos_embed"] = tensors["pos_embed"][:, :15].clone()
    with pytest.raises(CheckpointError, match=r"15 stored positions fit several grids \(2x7, 7x2"):
        opened(tmp_path, tensors)
