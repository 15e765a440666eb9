"""Folders with a config.json of timm, as pathology models are published, against timm itself.

Small networks in the very layouts: architecture, model_args, pretrained_cfg with a tag that timm
does not have, and what is only said in the code that their authors give (SwiGLU, layer scale).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.layers import SwiGLU, SwiGLUPacked

import attnviz as package
from attnviz.errors import CheckpointError, UnsupportedModelError, UsageError
from tests.helpers.command_line import arrays, attnviz, meta
from tests.reference.unfused import peaked, unfused

TOLERANCE = 1e-5
MEAN, STD = [0.707223, 0.578729, 0.703617], [0.211883, 0.230117, 0.177517]
SMALL = {"embed_dim": 96, "depth": 3, "num_heads": 3, "num_classes": 0}
GATE = {"mlp_layer": SwiGLUPacked, "act_layer": torch.nn.SiLU}


@dataclass(frozen=True)
class Folder:
    """A published layout: ``code`` are the arguments that its authors give beside the config."""

    architecture: str
    model_args: dict[str, Any]
    prefix: int
    registers: int = 0
    code: dict[str, Any] = field(default_factory=dict)
    binary: bool = False


FOLDERS = {
    "UNI": Folder(
        "vit_large_patch16_224",
        {"img_size": 224, "init_values": 1e-5, "dynamic_img_size": True},
        1,
        binary=True,
    ),
    "UNI with its layer scale in the code": Folder(
        "vit_large_patch16_224", {"img_size": 224}, 1, code={"init_values": 1e-5}
    ),
    "UNI2-h": Folder(
        "vit_giant_patch14_224",
        {"img_size": 224, "patch_size": 14, "init_values": 1e-5, "mlp_ratio": 5.33334,
         "no_embed_class": True, "reg_tokens": 8, "dynamic_img_size": True},
        9, 8, GATE,
    ),
    "Virchow": Folder(
        "vit_huge_patch14_224",
        {"img_size": 224, "init_values": 1e-5, "mlp_ratio": 5.3375, "global_pool": "",
         "dynamic_img_size": True},
        1, code=GATE,
    ),
    "Virchow2": Folder(
        "vit_huge_patch14_224",
        {"img_size": 224, "init_values": 1e-5, "mlp_ratio": 5.3375, "global_pool": "",
         "reg_tokens": 4, "dynamic_img_size": True},
        5, 4, GATE,
    ),
    "Prov-GigaPath": Folder(
        "vit_giant_patch14_dinov2",
        {"img_size": 224, "in_chans": 3, "patch_size": 16, "init_values": 1e-5,
         "mlp_ratio": 5.33334},
        1, binary=True,
    ),
    "H-optimus-0": Folder(
        "vit_giant_patch14_reg4_dinov2",
        {"img_size": 224, "init_values": 1e-5, "dynamic_img_size": False},
        5, 4, binary=True,
    ),
    "H0-mini": Folder(
        "vit_base_patch14_reg4_dinov2",
        {"img_size": 224, "init_values": 1e-5, "mlp_ratio": 5.33334}, 5, 4, GATE,
    ),
    "a gate of its own": Folder(
        "vit_small_patch16_224", {"img_size": 224}, 1,
        code={"mlp_layer": SwiGLU, "act_layer": torch.nn.SiLU},
    ),
    "averaged, without CLS": Folder(
        "vit_small_patch16_224",
        {"img_size": 224, "class_token": False, "global_pool": "avg"}, 0,
    ),
}  # fmt: skip
ALL = pytest.mark.parametrize("name", FOLDERS)


def config_of(folder, **pretrained):
    """config.json as timm's push_to_hf_hub writes it."""
    return {
        "architecture": folder.architecture,
        "num_classes": 0,
        "num_features": 96,
        "global_pool": "token",
        "model_args": folder.model_args | SMALL,
        "pretrained_cfg": {
            "tag": "own_tag", "custom_load": False, "input_size": [3, 224, 224],
            "fixed_input_size": False, "interpolation": "bicubic", "crop_pct": 1.0,
            "mean": MEAN, "std": STD, "num_classes": 0, "first_conv": "patch_embed.proj",
            "classifier": "head", **pretrained,
        },
    }  # fmt: skip


def write(path, tensors, config, *, binary=False):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    if binary:
        torch.save(tensors, path / "pytorch_model.bin")
    else:
        save_file(tensors, path / "model.safetensors")
    return path


def timms(folder):
    """timm's own model, built with the config's arguments and those of the authors' code."""
    arguments = {k: v for k, v in folder.model_args.items() if k != "dynamic_img_size"}
    return peaked(
        timm.create_model(
            folder.architecture,
            **(arguments | SMALL | {"dynamic_img_size": True} | folder.code),
        )
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    known = {}

    def get(name):
        if name not in known:
            folder = FOLDERS[name]
            module = timms(folder)
            path = tmp_path_factory.mktemp("folders") / name.replace(" ", "-")
            write(path, module.state_dict(), config_of(folder), binary=folder.binary)
            known[name] = module, path, package.load_model(checkpoint=path, device="cpu")
        return known[name]

    return get


def pixels(patch, rows=14, columns=14):
    generator = torch.Generator().manual_seed(4)
    return torch.randn(1, 3, rows * patch, columns * patch, generator=generator)


def ours(model, batch):
    """Every matrix (L, H, N, N) that the product captures."""
    from attnviz.attention.capture import capture

    found = []

    def take(call):
        found.append(call.rows(torch.arange(call.query.shape[-2]))[0])

    capture(model, batch, model.info.depth - 1, take)
    return torch.stack(found).numpy()


@ALL
@pytest.mark.parametrize("grid", [(14, 14), (6, 10)])
def test_a_folder_is_the_model_that_timm_builds(name, grid, made):
    module, _, model = made(name)
    folder = FOLDERS[name]
    assert (model.info.prefix, model.info.registers) == (folder.prefix, folder.registers)
    batch = pixels(model.info.patch, *grid)
    expected = unfused(module, lambda: module.forward_features(batch))
    found = ours(model, batch)
    assert found.shape == expected.shape == (3, 3, *2 * [folder.prefix + grid[0] * grid[1]])
    assert np.abs(found - expected).max() < TOLERANCE
    assert expected.std() > 0.003, "nearly uniform attention would show nothing"
    with torch.inference_mode():
        tokens = model.run(batch) - module.forward_features(batch)
    assert float(tokens.abs().max()) < 1e-4


@ALL
def test_the_folder_says_name_size_and_pixel_statistics(name, made):
    _, path, model = made(name)
    info = model.info
    assert info.name == info.title == path.name
    assert info.timm_name == FOLDERS[name].architecture
    assert (info.mean, info.std) == (tuple(MEAN), tuple(STD))
    assert info.native_size == (224, 224)
    assert not info.statistics_assumed
    assert info.positions == "timm"
    gate = any("has a gate" in note for note in model.notes)
    own_gate = "dinov2" in info.timm_name and "giant" in info.timm_name
    assert gate == (bool(FOLDERS[name].code.get("mlp_layer")) and not own_gate)


@ALL
def test_the_file_in_the_folder_is_the_same_model(name, made):
    _, path, model = made(name)
    file = path / ("pytorch_model.bin" if FOLDERS[name].binary else "model.safetensors")
    again = package.load_model(checkpoint=file, device="cpu")
    batch = pixels(model.info.patch, 3, 4)
    assert (ours(again, batch) == ours(model, batch)).all()
    assert again.info.name == model.info.name
    assert again.info.weights_sha256 == model.info.weights_sha256


def test_the_architecture_of_the_folder_may_be_named_too(made):
    """The config's arguments count for its own architecture, and for no other."""
    _, path, model = made("Prov-GigaPath")
    named = package.load_model("vit_giant_patch14_dinov2", checkpoint=path, device="cpu")
    batch = pixels(16, 3, 4)
    assert (ours(named, batch) == ours(model, batch)).all()
    assert named.info.name == "vit_giant_patch14_dinov2"
    with pytest.raises(CheckpointError, match="patch size 16 in the weights, 14 in vit_large_pat"):
        package.load_model("vit_large_patch14_dinov2", checkpoint=path, device="cpu")


def test_a_config_can_name_the_activation_of_a_gate(tmp_path):
    folder = FOLDERS["Virchow2"]
    gelu = Folder(folder.architecture, folder.model_args, 5, 4, GATE | {"act_layer": torch.nn.GELU})
    module = timms(gelu)
    config = config_of(folder)
    config["model_args"] |= {"act_layer": "gelu"}
    path = write(tmp_path / "gelu", module.state_dict(), config)
    model = package.load_model(checkpoint=path, device="cpu")
    batch = pixels(14, 4, 4)
    expected = unfused(module, lambda: module.forward_features(batch))
    assert np.abs(ours(model, batch) - expected).max() < TOLERANCE
    assert "mlp_layer SwiGLUPacked with act_layer gelu is assumed" in model.notes[-1]


def test_a_gate_that_is_not_recognised_would_be_seen(made):
    """GELU in the gate, which the shapes do not rule out, gives another attention."""
    _, _, model = made("Virchow2")
    batch = pixels(14, 4, 4)
    expected = ours(model, batch)
    for block in model.blocks:
        block.mlp.act = torch.nn.GELU()
    try:
        assert np.abs(ours(model, batch) - expected).max() > 1e-4
    finally:
        for block in model.blocks:
            block.mlp.act = torch.nn.SiLU()


def test_a_folder_through_the_command_line(made, tmp_path):
    module, path, _ = made("UNI")
    picture = tmp_path / "tile.png"
    noise = np.random.default_rng(1).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    Image.fromarray(noise).save(picture)
    code = attnviz("layers", picture, "--checkpoint", path, "--size", "original", "--save-data",
                   "--dpi", 40, "--no-distance", "--out", tmp_path, "--quiet")  # fmt: skip
    assert code == 0
    saved = arrays(tmp_path / "tile.layers.npz")
    values = (noise / 255 - np.array(MEAN)) / np.array(STD)
    batch = torch.from_numpy(values.transpose(2, 0, 1).astype(np.float32).copy())[None]
    expected = unfused(module, lambda: module.forward_features(batch))[:, :, 0, 1:]
    assert np.abs(saved["attention"].reshape(3, 3, 24) - expected).max() < TOLERANCE
    record = meta(tmp_path / "tile.layers.npz")
    assert record["model"] == "UNI"
    assert record["architecture"]["timm_name"] == "vit_large_patch16_224"


WIDE = Folder("vit_tiny_patch16_224", {"img_size": [32, 128]}, 1)


def test_a_stored_grid_that_is_not_square_is_that_of_the_config(tmp_path):
    """16 positions are 2 x 8 here; nothing is resized at the model's own size."""
    module = timms(WIDE)
    assert module.pos_embed.shape[1] == 1 + 16
    batch = pixels(16, 2, 8)
    expected = unfused(module, lambda: module.forward_features(batch))
    for config in (config_of(WIDE), config_of(WIDE, input_size=[3, 32, 128])):
        path = write(tmp_path / "wide", module.state_dict(), config)
        model = package.load_model(checkpoint=path, device="cpu")
        assert model.info.native_size == (32, 128)
        assert np.abs(ours(model, batch) - expected).max() < TOLERANCE
        assert model.run(batch).shape == (1, 17, 96)
    as_square = dict(module.state_dict())
    save_file(as_square, tmp_path / "bare.safetensors")
    square = package.load_model(checkpoint=tmp_path / "bare.safetensors", heads=3, device="cpu")
    assert np.abs(ours(square, batch) - expected).max() > 1e-2, "4 x 4 would be another model"
    assert "4x4 positions (a square is assumed)" in square.notes[0]


def test_a_grid_of_the_input_size_where_the_arguments_do_not_say_it(tmp_path):
    module = timms(WIDE)
    config = config_of(WIDE, input_size=[3, 32, 128])
    del config["model_args"]["img_size"]
    model = package.load_model(
        checkpoint=write(tmp_path / "wide", module.state_dict(), config), device="cpu"
    )
    batch = pixels(16, 2, 8)
    expected = unfused(module, lambda: module.forward_features(batch))
    assert np.abs(ours(model, batch) - expected).max() < TOLERANCE


def bare(tmp_path, height, width, **more):
    """A file without config of a ViT with positions for that size; and the module."""
    module = peaked(
        timm.create_model(
            "vit_tiny_patch16_224", img_size=(height, width), dynamic_img_size=True,
            **(SMALL | more),
        )
    )  # fmt: skip
    path = tmp_path / "bare.safetensors"
    save_file(module.state_dict(), path)
    return module, path


def test_positions_that_fit_several_grids_are_refused_until_the_size_is_given(tmp_path):
    module, path = bare(tmp_path, 48, 128)
    with pytest.raises(CheckpointError, match="25 stored positions fit several grids") as caught:
        package.load_model(checkpoint=path, heads=3, device="cpu")
    assert "4x6, 6x4, 3x8" in caught.value.message
    assert "--model-arg img-height=PIXELS --model-arg img-width=PIXELS" in caught.value.hint
    model = package.load_model(checkpoint=path, heads=3, img_height=48, img_width=128, device="cpu")
    assert model.info.native_size == (48, 128)
    batch = pixels(16, 3, 8)
    expected = unfused(module, lambda: module.forward_features(batch))
    assert np.abs(ours(model, batch) - expected).max() < TOLERANCE
    assert "assumed)" not in model.notes[0]


def test_one_and_24_positions_are_cls_and_a_grid_before_they_are_5_by_5(tmp_path):
    _, path = bare(tmp_path, 48, 128)
    with pytest.raises(UsageError, match="25 stored positions do not fit the 2x3 grid"):
        package.load_model(checkpoint=path, heads=3, img_height=32, img_width=48, device="cpu")
    module, path = bare(tmp_path, 80, 80, no_embed_class=True)
    assert module.pos_embed.shape[1] == 25
    model = package.load_model(checkpoint=path, heads=3, size=80, device="cpu")
    batch = pixels(16, 5, 5)
    expected = unfused(module, lambda: module.forward_features(batch))
    assert np.abs(ours(model, batch) - expected).max() < TOLERANCE


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"img_height": 48}, "img-height needs img-width"),
        ({"size": 48, "img_width": 48}, "size is both sides"),
        ({"img_height": 0, "img_width": 8}, "img_height=0 is too small"),
    ],
)
def test_half_a_size_is_wrong_use(args, message, tmp_path):
    _, path = bare(tmp_path, 48, 128)
    with pytest.raises(UsageError, match=message):
        package.load_model(checkpoint=path, heads=3, device="cpu", **args)


def test_the_size_on_the_command_line(tmp_path):
    _, path = bare(tmp_path, 48, 128)
    picture = tmp_path / "wide.png"
    Image.fromarray(np.full((48, 128, 3), 90, np.uint8)).save(picture)
    size = ("--model-arg", "img-height=48", "--model-arg", "img-width=128")
    code = attnviz("heads", picture, "--checkpoint", path, *size, "--model-arg", "heads=3",
                   "--save-data", "--dpi", 40, "--no-distance", "--out", tmp_path)  # fmt: skip
    assert code == 0
    assert meta(tmp_path / "wide.heads.npz")["grid"] == [3, 8]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (
            {"architecture": "vit_newer_patch16_224"},
            UnsupportedModelError,
            "has no model vit_newer",
        ),
        ({"architecture": "resnet50"}, UnsupportedModelError, "is not supported .timm's resnet"),
        ({"model_args": [1]}, CheckpointError, "model_args is not a JSON object"),
        ({"model_args": SMALL | {"num_heads": 5}}, UsageError, "cannot be built with"),
        ({"model_args": SMALL | {"mlp_layer": "NoSuchLayer"}}, UsageError, "no mlp_layer"),
        ({"model_args": SMALL | {"depth": 4}}, CheckpointError, "depth 3 in the weights, 4 in"),
    ],
)
def test_a_config_that_does_not_fit_says_so(change, kind, message, tmp_path):
    folder = FOLDERS["UNI"]
    path = write(tmp_path / "odd", timms(folder).state_dict(), config_of(folder) | change)
    with pytest.raises(kind, match=message):
        package.load_model(checkpoint=path, device="cpu")


def test_the_fields_of_old_configs_stand_on_the_top_level(tmp_path):
    module = peaked(timm.create_model("test_vit", num_classes=0, dynamic_img_size=True))
    config = {"architecture": "test_vit", "num_classes": 0, "input_size": [3, 160, 160],
              "mean": MEAN, "std": STD, "interpolation": "bilinear"}  # fmt: skip
    path = write(tmp_path / "old", module.state_dict(), config)
    model = package.load_model(checkpoint=path, device="cpu")
    assert (model.info.mean, model.info.native_size) == (tuple(MEAN), (160, 160))
    batch = pixels(16, 4, 5)
    expected = unfused(module, lambda: module.forward_features(batch))
    assert np.abs(ours(model, batch) - expected).max() < TOLERANCE


@pytest.mark.parametrize("named", [True, False])
def test_layers_that_a_config_names_are_taken(named, tmp_path):
    folder = Folder("vit_small_patch16_224", {"act_layer": "quick_gelu"}, 1)
    module = timms(folder)
    config = config_of(folder)
    if not named:
        del config["model_args"]["act_layer"]
    path = write(tmp_path / "quick", module.state_dict(), config)
    model = package.load_model(checkpoint=path, device="cpu")
    batch = pixels(16, 4, 5)
    expected = unfused(module, lambda: module.forward_features(batch))
    assert (np.abs(ours(model, batch) - expected).max() < TOLERANCE) == named
