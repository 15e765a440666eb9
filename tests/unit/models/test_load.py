"""What a request becomes: the rule for positions, the number type, notes and refusals."""

from __future__ import annotations

import pytest
import torch

from attnviz.domain import Positions, Precision
from attnviz.domain.requests import ModelRequest
from attnviz.errors import CheckpointError, UnknownModelError, UsageError
from attnviz.models import load
from attnviz.models.assign import move
from attnviz.models.load import load_backbone
from tests.helpers.checkpoints import meta_dinov3, original, pixels, save, timm_model
from tests.helpers.planted import tiny_vit

OWN = {"heads": 2}


def loaded(tmp_path, content, **more):
    path = save(tmp_path / "weights.pth", content)
    return load_backbone(ModelRequest(checkpoint=path, device="cpu", **more))


@pytest.mark.parametrize(
    ("layout", "registers", "rule", "offset"),
    [
        ("dino", 0, "original", True),
        ("dinov2", 0, "original", True),
        ("dinov2", 4, "original", False),
    ],
)
def test_positions_follow_the_code_that_the_file_comes_from(
    tmp_path, layout, registers, rule, offset
):
    model = loaded(tmp_path, original(layout, registers=registers), args=OWN)
    assert model.info.positions == rule
    assert model._offset is offset


def test_a_timm_name_means_timms_rule_and_a_request_beats_both(tmp_path):
    module = tiny_vit().module
    sizes = {"width": 32, "depth": 3, "heads": 2, "patch": 8, "size": 32}
    model = loaded(tmp_path, module.state_dict(), name="vit_small_patch16_224", args=sizes)
    assert model.info.positions is Positions.TIMM
    asked = loaded(
        tmp_path, module.state_dict(), name="vit_small_patch16_224", args=sizes,
        positions=Positions.HF,
    )  # fmt: skip
    assert asked.info.positions is Positions.HF
    nameless = loaded(tmp_path, module.state_dict(), args=OWN)
    assert nameless.info.positions is Positions.ORIGINAL


@pytest.mark.parametrize("precision", [Precision.BFLOAT16, Precision.FLOAT16])
def test_the_rotation_keeps_its_periods_and_float32_in_half_precision(tmp_path, precision):
    """Meta's file holds rounded periods, and its code rotates in float32 whatever the model is."""
    content = meta_dinov3()
    model = loaded(tmp_path, content, precision=precision)
    periods = model.module.rope.periods
    assert model.dtype is not torch.float32
    assert periods.dtype is torch.float32
    assert torch.equal(periods, content["rope_embed.periods"].float())
    exact = 100 ** (torch.arange(8) / 8)
    assert not torch.equal(periods, exact), "a period that is exact would show nothing"
    given = []
    model.blocks[0].attn.register_forward_pre_hook(
        lambda _module, _args, kwargs: given.append(kwargs["rope"]), with_kwargs=True
    )
    with torch.inference_mode():
        tokens = model.run(pixels(32, 48))
    assert given[0].dtype is torch.float32
    assert torch.isfinite(tokens).all()


def test_a_move_to_what_is_there_already_copies_nothing(tmp_path):
    model = loaded(tmp_path, meta_dinov3())
    before = {name: tensor.data_ptr() for name, tensor in model.module.state_dict().items()}
    moved = move(model.module, torch.device("cpu"), torch.float32)
    assert {name: t.data_ptr() for name, t in moved.state_dict().items()} == before


def test_a_dino_file_of_its_own_size_is_prepared_for_as_dino_is(tmp_path):
    """Not as the supervised ViT of the same shapes, whose pixels are centred at 0.5."""
    model = loaded(tmp_path, original(), args=OWN)
    assert model.info.mean == (0.485, 0.456, 0.406)
    supervised = loaded(tmp_path, original() | {"head.weight": torch.zeros(10, 64)}, args=OWN)
    assert supervised.info.mean == (0.5, 0.5, 0.5)
    assert "mean 0.5,0.5,0.5 and std 0.5,0.5,0.5 are assumed" in supervised.notes[1]


def test_the_note_says_what_was_loaded(tmp_path):
    model = loaded(tmp_path, {"teacher": original(), "student": original(seed=1)}, args=OWN)
    assert model.notes[0] == (
        "weights.pth: patch 8, width 64, 4 layers, 2 heads, 0 registers, 4x4 positions (a square "
        "is assumed); 54 of 54 tensors from weights.pth (teacher) (dino layout)"
    )


def test_an_epsilon_of_the_config_reaches_every_norm():
    module = tiny_vit().module
    load._set_eps(module, 0.25)
    norms = [part for part in module.modules() if isinstance(part, torch.nn.LayerNorm)]
    assert len(norms) == 7
    assert {norm.eps for norm in norms} == {0.25}


def test_weights_that_no_shape_explains_ask_for_a_name(tmp_path):
    content = original() | {"norm_pre.weight": torch.ones(64), "norm_pre.bias": torch.zeros(64)}
    with pytest.raises(CheckpointError, match=r"no counterpart.*patch_embed\.proj\.bias") as caught:
        loaded(tmp_path, content, args=OWN)
    assert "name it with --model" in caught.value.hint


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        ({"name": "dino_vitz8"}, UnknownModelError, "did you mean dino_vit"),
        ({"device": "abacus"}, UsageError, "is not a device"),
        ({"name": "dino_vits8", "args": {"colour": 3}}, UsageError, "--model-arg colour"),
        ({"name": "dino_vits8", "args": {"heads": 5, "depth": 1}}, UsageError, "num_heads=5"),
        ({"name": "dino_vits8", "args": {"depth": 0}}, UsageError, "depth=0 is too small"),
    ],
)
def test_a_request_that_cannot_be_honoured_is_wrong_use(request_, kind, message):
    with pytest.raises(kind, match=message) as caught:
        load_backbone(ModelRequest(random_weights=True, **{"device": "cpu"} | request_))
    assert "\n" not in caught.value.message


def test_random_weights_are_the_same_in_every_run_and_said_to_be_random():
    request = ModelRequest(
        name="dino_vits16", random_weights=True, device="cpu", args={"depth": 1, "size": 64}
    )
    one, other = load_backbone(request), load_backbone(request)
    assert one.info.random_weights
    assert one.info.weights == "random weights"
    assert one.info.native_size == (64, 64)
    state = other.module.state_dict()
    assert all(torch.equal(t, state[name]) for name, t in one.module.state_dict().items())
    assert float(one.module.blocks[0].attn.qkv.weight.std()) > 0.01


def test_a_named_model_with_weights_is_that_of_timm(tmp_path):
    """The module out of the loader and one that timm builds and loads give the same tokens."""
    content = meta_dinov3(bias=0.7)
    model = loaded(tmp_path, content)
    from attnviz.models.assign import load_strictly
    from attnviz.models.weights.checkpoint import open_checkpoint

    checkpoint = open_checkpoint(tmp_path / "weights.pth")
    other = timm_model(checkpoint, "vit_small_patch16_dinov3", qkv_bias=True, img_size=32)
    load_strictly(other, checkpoint)
    image = pixels(32, 32)
    with torch.inference_mode():
        assert torch.equal(model.run(image), other.forward_features(image))
