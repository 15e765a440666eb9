"""The table of named models against timm's own definitions, and its look-up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import timm
import torch

from attnviz.domain.requests import ModelRequest
from attnviz.errors import UnknownModelError, UsageError
from attnviz.models import catalogue, load
from attnviz.models.catalogue import ALIASES, MODELS, find_spec, unknown_model
from attnviz.models.load import load_backbone
from attnviz.models.weights.inferred import Source

HUB = [spec for spec in MODELS.values() if not spec.packaged]
BACKBONES = [spec for spec in HUB if spec.timm_name.count(".") == 1]


@pytest.mark.parametrize("spec", BACKBONES, ids=lambda spec: spec.name)
def test_each_row_is_what_timm_builds(spec):
    with torch.device("meta"):
        module = timm.create_model(spec.timm_name, num_classes=0)
    config = timm.get_pretrained_cfg(spec.timm_name)
    attn = module.blocks[0].attn
    assert spec.patch == module.patch_embed.patch_size[0]
    assert spec.width == module.embed_dim
    assert spec.depth == len(module.blocks)
    assert spec.heads == attn.num_heads
    assert spec.registers == module.num_prefix_tokens - 1
    assert spec.native_size == config.input_size[1] == config.input_size[2]
    assert spec.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert spec.repository == config.hf_hub_id
    names = module.state_dict().keys()
    assert spec.layer_scale == any(n in names for n in ("blocks.0.ls1.gamma", "blocks.0.gamma_1"))
    assert spec.rotary == ("pos_embed" not in names)
    assert spec.gated_mlp == (
        "blocks.0.mlp.fc1_g.weight" in names
        or module.blocks[0].mlp.fc1.out_features == 2 * module.blocks[0].mlp.fc2.in_features
    )


def test_the_names_that_the_command_line_promises_are_there():
    promised = {f"dino_vit{size}{patch}" for size in "sb" for patch in (8, 16)}
    promised |= {f"dinov2_vit{size}14{reg}" for size in "sblg" for reg in ("", "_reg")}
    promised |= {"dinov3_vits16", "dinov3_vitb16", "dinov3_vitl16"}
    promised |= {"dinov3_vits16plus", "dinov3_vith16plus"}
    assert promised <= MODELS.keys()


def test_two_models_of_one_name_raise():
    spec = MODELS["dino_vits8"]
    with pytest.raises(ValueError, match="two models have the name dino_vits8"):
        catalogue._table([spec, spec])


def test_dino_vits8_means_the_ordinary_file_not_the_one_of_the_figure_script():
    assert MODELS["dino_vits8"].weights_file == "dino_deitsmall8_pretrain.pth"
    assert "300" not in MODELS["dino_vits8"].weights_file
    assert MODELS["dino_vits8"].timm_name == "vit_small_patch8_224.dino"


def test_weights_files_and_timm_names_belong_to_one_model_each():
    assert len({spec.weights_file for spec in MODELS.values()}) == len(MODELS)
    assert len({spec.timm_name for spec in HUB}) == len(HUB)


def test_a_model_is_found_by_name_alias_and_timm_tag():
    assert find_spec("dinov2_vitb14") is MODELS["dinov2_vitb14"]
    assert find_spec("vit_base_patch14_dinov2.lvd142m") is MODELS["dinov2_vitb14"]
    assert find_spec("dinov3_vitsplus16") is MODELS["dinov3_vits16plus"]
    assert find_spec("vit_small_patch8_224") is None
    assert all(name in MODELS and alias not in MODELS for alias, name in ALIASES.items())


def test_an_unknown_name_shows_near_matches_of_both_lists():
    error = unknown_model("dino_vit_s8")
    assert isinstance(error, UnknownModelError)
    assert isinstance(error, UsageError)
    assert "'dino_vit_s8'" in error.message
    assert "dino_vits8" in error.message
    assert "attnviz models" in error.hint
    more = unknown_model("vit_tiny_patch16_22", ["vit_tiny_patch16_224", "resnet50"])
    assert "vit_tiny_patch16_224" in more.message
    assert "resnet50" not in more.message


def test_a_name_like_no_other_suggests_nothing():
    assert unknown_model("zzzz").message == "there is no model 'zzzz'"


def test_the_local_cache_is_seen_without_torch(tmp_path, light_server):
    folder = tmp_path / "models--timm--vit_small_patch8_224.dino"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "snapshots" / "abc" / "model.safetensors").write_bytes(b"x")
    code = (
        "import sys; from attnviz.models.catalogue import MODELS, cached;"
        "print(cached(MODELS['dino_vits8']), cached(MODELS['dino_vits16']),"
        " any(name in sys.modules for name in ('torch', 'timm', 'matplotlib')))"
    )
    done = light_server.run(source=code, environment={"HF_HUB_CACHE": str(tmp_path)})
    assert done.stdout.split() == ["True", "False", "False"]


@pytest.mark.parametrize("spec", MODELS.values(), ids=lambda spec: spec.name)
def test_the_position_rule_of_the_list_is_that_of_records(spec):
    """Without weights, and with those of the name in timm's layout, in which the hub has them."""
    request = ModelRequest(name=spec.name)
    assert load._rule(request, spec, None) is spec.positions
    in_timms_layout = SimpleNamespace(source=Source.TIMM)
    assert load._rule(request, spec, in_timms_layout) is spec.positions


def test_the_record_of_the_demo_says_what_the_list_says():
    model = load_backbone(ModelRequest(name="demo", device="cpu"))
    assert model.info.positions is MODELS["demo"].positions
