"""Folders of the transformers library: its own attention, every layer and head, against ours."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load as load_bytes
from safetensors.torch import load_file, save_file

from attnviz.domain import Positions, Size
from attnviz.errors import CheckpointError
from attnviz.models.assign import load_strictly
from attnviz.models.identify import check_against, identify
from attnviz.models.weights.checkpoint import open_checkpoint
from attnviz.models.weights.inferred import Source
from tests.helpers.checkpoints import (
    attention_of,
    edit_config,
    pixels,
    randomise,
    timm_model,
    undrawn,
)

transformers.utils.logging.disable_progress_bar()

SMALL = {"hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 2,
         "attn_implementation": "eager"}  # fmt: skip

# kind -> (model, its config, timm's model of that family, the wrapper's model or None)
KINDS = {
    "vit": (
        transformers.ViTModel,
        transformers.ViTConfig(
            **SMALL | {"num_hidden_layers": 12}, intermediate_size=1536, image_size=224,
            patch_size=16,
        ),
        "vit_small_patch16_224.dino",
        transformers.ViTForImageClassification,
    ),
    "dinov2": (
        transformers.Dinov2Model,
        transformers.Dinov2Config(**SMALL, image_size=518, patch_size=14),
        "vit_small_patch14_dinov2",
        transformers.Dinov2ForImageClassification,
    ),
    "dinov2-swiglu": (
        transformers.Dinov2Model,
        transformers.Dinov2Config(**SMALL, image_size=224, patch_size=14, use_swiglu_ffn=True),
        "vit_giant_patch14_dinov2",
        None,
    ),
    "registers": (
        transformers.Dinov2WithRegistersModel,
        transformers.Dinov2WithRegistersConfig(**SMALL, image_size=224, patch_size=14),
        "vit_small_patch14_reg4_dinov2",
        transformers.Dinov2WithRegistersForImageClassification,
    ),
    "dinov3": (
        transformers.DINOv3ViTModel,
        transformers.DINOv3ViTConfig(
            **SMALL, intermediate_size=1536, image_size=224, num_register_tokens=4
        ),
        "vit_small_patch16_dinov3",
        None,
    ),
    "dinov3-plus": (
        transformers.DINOv3ViTModel,
        transformers.DINOv3ViTConfig(
            **SMALL, intermediate_size=1536, image_size=224, num_register_tokens=4,
            use_gated_mlp=True, hidden_act="silu",
        ),
        "vit_small_plus_patch16_dinov3",
        None,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Each kind of model, built once with fixed weights, and the folder it is saved in."""
    made = {}

    def get(kind):
        if kind not in made:
            build, config, _, _ = KINDS[kind]
            model = randomise(undrawn(build, config))
            folder = tmp_path_factory.mktemp(kind)
            model.save_pretrained(folder)
            made[kind] = model, folder
        return made[kind]

    return get


@pytest.fixture
def copied(saved, tmp_path):
    """A copy of a saved folder, to be changed."""

    def get(kind):
        return Path(shutil.copytree(saved(kind)[1], tmp_path / kind))

    return get


def load(folder, kind, **more):
    checkpoint = open_checkpoint(folder)
    inferred = checkpoint.inferred
    if inferred.rotary:
        more |= {"qkv_bias": inferred.qkv_bias, "img_size": 224}
    if inferred.gated_mlp and not inferred.rotary:
        more |= {"mlp_ratio": 2 * inferred.mlp_hidden / inferred.width}
    module = timm_model(checkpoint, KINDS[kind][2], heads=inferred.heads, **more)
    count = load_strictly(module, checkpoint)
    assert count == len(module.state_dict())
    return checkpoint, module


@torch.no_grad()
def their_attention(model, image):
    return torch.stack(model(image, output_attentions=True).attentions)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_is_that_of_transformers(saved, kind):
    model, folder = saved(kind)
    checkpoint, module = load(folder, kind)
    side = model.config.image_size
    image = pixels(side, side)
    theirs = their_attention(model, image)
    ours = attention_of(module, image)
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) < 1e-5
    assert float(theirs.std()) > 1e-4, "nearly uniform attention would show nothing"
    assert checkpoint.inferred.heads == 6
    rule = Positions.ORIGINAL if kind == "registers" else Positions.HF
    assert checkpoint.source.positions is rule


def test_rotation_holds_for_another_size_too(saved):
    model, folder = saved("dinov3")
    _, module = load(folder, "dinov3", dynamic_img_size=True)
    image = pixels(160, 288)
    difference = (attention_of(module, image) - their_attention(model, image)).abs().max()
    assert float(difference) < 1e-5


def swap(folder, first, second):
    """Exchange the tensors of two name parts in a folder's weights."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    swapped = {
        name.replace(first, "\0").replace(second, first).replace("\0", second): tensor
        for name, tensor in tensors.items()
    }
    assert swapped.keys() == tensors.keys()
    save_file(swapped, path)


def test_query_and_key_swapped_would_be_seen(saved, copied):
    model, _ = saved("registers")
    folder = copied("registers")
    swap(folder, ".query.", ".key.")
    _, module = load(folder, "registers")
    image = pixels(224, 224)
    theirs = their_attention(model, image)[0]
    ours = attention_of(module, image)[0]
    assert float((ours - theirs).abs().max()) > 1e-2


def test_registers_shifted_by_one_would_be_seen(saved, copied):
    model, _ = saved("registers")
    folder = copied("registers")
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = "embeddings.register_tokens"
    tensors[name] = tensors[name].roll(1, dims=1).contiguous()
    save_file(tensors, path)
    _, module = load(folder, "registers")
    image = pixels(224, 224)
    difference = (attention_of(module, image) - their_attention(model, image)).abs().max()
    assert float(difference) > 1e-2


def test_rotating_the_prefix_too_would_be_seen(saved):
    model, folder = saved("dinov3")
    _, module = load(folder, "dinov3")
    image = pixels(224, 224)
    theirs = their_attention(model, image)
    for block in module.blocks:
        block.attn.register_forward_pre_hook(_rotate_prefix, with_kwargs=True)
    assert float((attention_of(module, image) - theirs).abs().max()) > 1e-2


def _rotate_prefix(attn, args, kwargs):
    rope = kwargs["rope"]
    attn.num_prefix_tokens = 0
    kwargs["rope"] = torch.cat([rope[:5], rope], dim=0)
    return args, kwargs


@pytest.mark.parametrize("kind", ["vit", "dinov2", "registers"])
def test_the_wrapper_of_a_classifier_changes_nothing(saved, tmp_path, kind):
    model, folder = saved(kind)
    wrapper = KINDS[kind][3](model.config)
    base = getattr(wrapper, wrapper.base_model_prefix)
    base.load_state_dict(model.state_dict(), strict=False)
    wrapper.save_pretrained(tmp_path)
    wrapped, plain = open_checkpoint(tmp_path), open_checkpoint(folder)
    assert wrapped.tensors.keys() == plain.tensors.keys()
    assert all(torch.equal(wrapped.tensors[n], plain.tensors[n]) for n in plain.tensors)
    assert "classifier.weight" in wrapped.unused


@pytest.mark.parametrize("kind", ["vit", "dinov2-swiglu", "dinov3-plus"])
def test_names_that_newer_versions_hold_in_memory_are_read_too(saved, tmp_path, kind):
    model, folder = saved(kind)
    shutil.copy(folder / "config.json", tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    newer, plain = open_checkpoint(tmp_path), open_checkpoint(folder)
    assert newer.tensors.keys() == plain.tensors.keys()
    assert all(torch.equal(newer.tensors[n], plain.tensors[n]) for n in plain.tensors)


@pytest.mark.parametrize("safe", [True, False])
def test_weights_in_several_files_are_read_by_their_index(saved, tmp_path, safe):
    _, folder = saved("dinov2")
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    kind = "model-{}-of-2.safetensors" if safe else "pytorch_model-{}-of-2.bin"
    index = "model.safetensors.index.json" if safe else "pytorch_model.bin.index.json"
    where = {}
    for part, chosen in enumerate((names[:20], names[20:])):
        file = kind.format(part + 1)
        some = {name: tensors[name] for name in chosen}
        (save_file if safe else torch.save)(some, tmp_path / file)
        where |= dict.fromkeys(chosen, file)
    (tmp_path / index).write_text(json.dumps({"metadata": {}, "weight_map": where}))
    shutil.copy(folder / "config.json", tmp_path)
    for given in (tmp_path, tmp_path / index):
        split, plain = open_checkpoint(given), open_checkpoint(folder)
        assert len(split.files) == 2
        assert all(torch.equal(split.tensors[n], plain.tensors[n]) for n in plain.tensors)

    (tmp_path / kind.format(2)).unlink()
    with pytest.raises(CheckpointError, match="which is missing"):
        open_checkpoint(tmp_path)
    where[names[0]] = "../model.safetensors"
    (tmp_path / index).write_text(json.dumps({"weight_map": where}))
    with pytest.raises(CheckpointError, match="outside its folder"):
        open_checkpoint(tmp_path)


def test_a_file_is_read_with_the_config_beside_it_and_not_without(saved, tmp_path):
    _, folder = saved("dinov2")
    file = folder / "model.safetensors"
    assert open_checkpoint(file).inferred == open_checkpoint(folder).inferred
    alone = Path(shutil.copy(file, tmp_path))
    with pytest.raises(CheckpointError, match=r"no config\.json beside it"):
        open_checkpoint(alone)


def test_the_epsilon_and_the_heads_are_those_of_the_config(copied):
    folder = copied("vit")
    assert open_checkpoint(folder).inferred.eps == 1e-12
    edit_config(folder, layer_norm_eps=1e-6, num_attention_heads=12)
    inferred = open_checkpoint(folder).inferred
    assert (inferred.eps, inferred.heads) == (1e-6, 12)
    edit_config(folder, layer_norm_eps=None)
    assert open_checkpoint(folder).inferred.eps == 1e-12


def test_heads_of_the_config_that_differ_from_the_model_are_an_error(copied):
    folder = copied("vit")
    edit_config(folder, num_attention_heads=12)
    with pytest.raises(CheckpointError, match="heads 12 in the weights, 6 in dino_vits16"):
        check_against(open_checkpoint(folder), name="dino_vits16", patch=16, width=384, depth=12,
                      heads=6, registers=0, has_cls=True)  # fmt: skip
    assert identify(open_checkpoint(folder)) is None


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("dinov2", {"num_attention_heads": None}, "num_attention_heads of config.json is None"),
        ("dinov2", {"num_attention_heads": 7}, "is 7, the width is 384"),
        ("dinov2", {"hidden_size": 768}, "says hidden_size 768, the weights have 384"),
        ("dinov2", {"num_hidden_layers": 12}, "says num_hidden_layers 12, the weights have 2"),
        ("dinov2", {"patch_size": 16}, "says patch_size 16, the weights have 14"),
        ("dinov2", {"image_size": 224}, "do not fit the 16x16 grid of config.json"),
        ("dinov3", {"patch_size": 14}, "says patch_size 14, the weights have 16"),
        ("dinov3", {"num_register_tokens": 3}, "num_register_tokens 3, the weights have 4"),
        ("dinov2", {"hidden_act": "tanh"}, "says hidden_act 'tanh'"),
        ("dinov2", {"hidden_act": {}}, "says hidden_act {}"),
        ("dinov2", {"num_attention_heads": True}, "num_attention_heads of config.json is True"),
        ("dinov2", {"model_type": "swin"}, "of a 'swin' model"),
        ("dinov2", {"model_type": None}, "of a None model"),
    ],
)
def test_a_config_that_does_not_fit_is_an_error(copied, kind, changes, message):
    folder = copied(kind)
    edit_config(folder, **changes)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder)
    assert message in caught.value.message
    assert str(folder) in caught.value.message


def test_another_rotation_base_needs_another_model(copied):
    folder = copied("dinov3")
    edit_config(folder, rope_theta=10_000.0)
    with pytest.raises(CheckpointError, match="rotary periods"):
        load(folder, "dinov3")


def test_a_missing_projection_and_a_strange_tensor_are_named(copied):
    folder = copied("dinov2")
    path = folder / "model.safetensors"
    tensors = load_bytes(path.read_bytes())  # not mapped: the file is written again
    name = "encoder.layer.1.attention.attention.key.weight"
    save_file({n: t for n, t in tensors.items() if n != name}, path)
    with pytest.raises(CheckpointError, match=r"blocks\.1\.attention has no k weight"):
        open_checkpoint(folder)
    save_file(tensors | {"encoder.layer.1.adapter.weight": torch.eye(2)}, path)
    with pytest.raises(CheckpointError, match="adapter"):
        open_checkpoint(folder)


def test_a_non_square_image_size_gives_a_non_square_grid(tmp_path):
    config = transformers.Dinov2Config(
        hidden_size=64, num_attention_heads=2, num_hidden_layers=1, image_size=[28, 56]
    )
    transformers.Dinov2Model(config).save_pretrained(tmp_path)
    # transformers itself stores positions for (height // patch) * (width // patch) patches.
    inferred = open_checkpoint(tmp_path).inferred
    assert inferred.grid == Size(2, 4)
    assert inferred.image_size == Size(28, 56)


def write_preprocessor(folder, **fields):
    (folder / "preprocessor_config.json").write_text(json.dumps(fields))


def test_the_preprocessor_gives_mean_std_filter_and_size(copied):
    folder = copied("dinov2")
    assert open_checkpoint(folder).preprocessing is None
    write_preprocessor(
        folder, image_mean=[0.5, 0.4, 0.3], image_std=[0.1, 0.2, 0.3], resample=3,
        do_center_crop=True, crop_size={"height": 224, "width": 224},
        size={"shortest_edge": 256}, rescale_factor=0.00392156862745098,
    )  # fmt: skip
    preprocessing = open_checkpoint(folder).preprocessing
    assert preprocessing is not None
    assert preprocessing.mean == (0.5, 0.4, 0.3)
    assert preprocessing.std == (0.1, 0.2, 0.3)
    assert preprocessing.interpolation == "bicubic"
    assert preprocessing.size == Size(224, 224)
    write_preprocessor(folder, do_normalize=False, size=384)
    preprocessing = open_checkpoint(folder).preprocessing
    assert preprocessing is not None
    assert (preprocessing.mean, preprocessing.std) == ((0, 0, 0), (1, 1, 1))
    assert (preprocessing.interpolation, preprocessing.size) == ("bilinear", Size(384, 384))


@pytest.mark.parametrize(
    "fields", [{"rescale_factor": 0.0078}, {"do_rescale": False}, {"image_mean": [0.5]}, {}]
)
def test_preprocessing_that_cannot_be_followed_is_an_error(copied, fields):
    folder = copied("dinov2")
    write_preprocessor(folder, **fields)
    with pytest.raises(CheckpointError, match="preprocessor_config"):
        open_checkpoint(folder)


def test_a_folder_is_known_by_its_shapes_unless_it_is_a_supervised_model(saved, copied):
    spec = identify(open_checkpoint(saved("vit")[1]))
    assert spec is not None
    assert spec.name == "dino_vits16"
    folder = copied("vit")
    write_preprocessor(folder, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    assert identify(open_checkpoint(folder)) is None
    assert open_checkpoint(folder).source is Source.HF_VIT


def test_timms_own_folder_says_what_it_is(tmp_path):
    from tests.helpers.checkpoints import original

    save_file(original(), tmp_path / "model.safetensors")
    config = {
        "architecture": "vit_small_patch8_224",
        "pretrained_cfg": {
            "tag": "dino", "input_size": [3, 224, 224], "interpolation": "bicubic",
            "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
        },
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.source is Source.TIMM
    assert checkpoint.timm is not None
    assert checkpoint.timm.name == "vit_small_patch8_224.dino"
    assert checkpoint.preprocessing is not None
    assert checkpoint.preprocessing.size == Size(224, 224)
    assert identify(checkpoint) is None, "the config names DINO's, but these have other sizes"


def test_a_config_that_is_no_json_is_named(copied):
    folder = copied("dinov2")
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read as JSON"):
        open_checkpoint(folder)
