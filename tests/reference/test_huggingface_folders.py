"""Folders of the transformers library through the command line, against its own attention.

Every model has the width, heads and depth of the published small one and fixed weights that make
the attention peaked. ``output_attentions`` in eager mode is the independent implementation: every
layer and head, at the native size and at another that is not square.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from attnviz.domain import Positions
from attnviz.models import load
from attnviz.models.weights import huggingface
from tests.helpers.checkpoints import edit_config, randomise, undrawn
from tests.helpers.command_line import arrays, attnviz, meta

transformers.utils.logging.disable_progress_bar()

TOLERANCE = 1e-5
VISIBLE = 1e-3
FIRST = ("--size", "original", "--layers", "0,1")
"""Two layers are enough to see a difference, and take a sixth of the time."""

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
SMALL = {
    "hidden_size": 384,
    "num_attention_heads": 6,
    "num_hidden_layers": 12,
    "attn_implementation": "eager",
}


@dataclass(frozen=True)
class Kind:
    """A model of transformers, the picture sizes it is tried at, and what a folder of it is."""

    name: str
    model: Any
    config: Any
    native: tuple[int, int]
    other: tuple[int, int]
    prefix: int
    positions: Positions
    wrapper: Any = None
    forward: tuple[str, ...] = ()


KINDS = [
    Kind(
        "vit", transformers.ViTModel,
        transformers.ViTConfig(**SMALL, intermediate_size=1536, image_size=224, patch_size=8),
        (224, 224), (184, 320), 1, Positions.HF,
        transformers.ViTForImageClassification, ("interpolate_pos_encoding",),
    ),
    Kind(
        "dinov2", transformers.Dinov2Model,
        transformers.Dinov2Config(**SMALL, image_size=518, patch_size=14),
        (518, 518), (280, 392), 1, Positions.HF,
        transformers.Dinov2ForImageClassification,
    ),
    Kind(
        "registers", transformers.Dinov2WithRegistersModel,
        transformers.Dinov2WithRegistersConfig(**SMALL, image_size=518, patch_size=14),
        (518, 518), (280, 392), 5, Positions.ORIGINAL,
        transformers.Dinov2WithRegistersForImageClassification,
    ),
    Kind(
        "dinov3", transformers.DINOv3ViTModel,
        transformers.DINOv3ViTConfig(
            **SMALL, intermediate_size=1536, image_size=224, patch_size=16, num_register_tokens=4
        ),
        (256, 256), (160, 288), 5, Positions.HF,
    ),
    Kind(
        "deit", transformers.DeiTModel,
        transformers.DeiTConfig(
            **SMALL | {"num_hidden_layers": 3}, intermediate_size=1536, image_size=224
        ),
        (224, 224), (160, 288), 2, Positions.HF,
        transformers.DeiTForImageClassificationWithTeacher, ("interpolate_pos_encoding",),
    ),
]  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
ALL = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """The model of a kind with its weights, and the folder it is saved in; each made once."""
    made = {}

    def get(kind):
        if kind.name not in made:
            model = randomise(undrawn(kind.model, kind.config))
            folder = tmp_path_factory.mktemp("hf") / kind.name
            model.save_pretrained(folder)
            made[kind.name] = model, folder
        return made[kind.name]

    return get


@pytest.fixture(scope="module")
def picture_of(tmp_path_factory):
    """A PNG file of noise of any size."""
    folder = tmp_path_factory.mktemp("pictures")

    def get(size):
        path = folder / f"{size[0]}x{size[1]}.png"
        if not path.exists():
            noise = np.random.default_rng(7).integers(0, 256, (*size, 3), dtype=np.uint8)
            Image.fromarray(noise).save(path)
        return path

    return get


def pixels_of(picture, mean=MEAN, std=STD):
    values = (np.asarray(Image.open(picture)) / 255 - mean) / std
    return torch.from_numpy(values.astype(np.float32).transpose(2, 0, 1).copy())[None]


def their_rows(model, kind, pixels):
    """The CLS row and the mean row over patches of every layer and head, (L, H, N) each."""
    with torch.inference_mode():
        attentions = model(
            pixels, output_attentions=True, **dict.fromkeys(kind.forward, True)
        ).attentions
        cls = torch.stack([each[0, :, 0] for each in attentions])
        mean = torch.stack([each[0, :, kind.prefix :].mean(dim=1) for each in attentions])
    return {"cls": cls.numpy(), "mean": mean.numpy()}


@pytest.fixture(scope="module")
def theirs_of(folder_of, picture_of):
    known = {}

    def get(kind, size):
        if (kind.name, size) not in known:
            model, _ = folder_of(kind)
            known[kind.name, size] = their_rows(model, kind, pixels_of(picture_of(size)))
        return known[kind.name, size]

    return get


@pytest.fixture
def ours_of(picture_of, tmp_path):
    """What ``attnviz layers`` saves of a folder: rows (L, H, N), and the record."""

    def get(folder, size, *options):
        out = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
        picture = picture_of(size)
        code = attnviz(
            "layers", picture, "--checkpoint", folder, "--save-data", "--quiet", "--dpi", 40,
            "--no-distance", "--out", out, *options,
        )  # fmt: skip
        assert code == 0
        file = out / f"{picture.stem}.layers.npz"
        return rows_of(arrays(file)), meta(file)

    return get


def rows_of(stored):
    patches = stored["attention"].reshape(*stored["prefix"].shape[:2], -1)
    return np.concatenate([stored["prefix"], patches], axis=-1)


def distance(ours, theirs):
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max())


@pytest.mark.slow(reason="attention of up to 1370 tokens, here and in transformers")
@ALL
def test_every_layer_and_head_at_the_native_size(kind, folder_of, theirs_of, ours_of):
    """No size and no model is named: the folder says both."""
    _, folder = folder_of(kind)
    ours, record = ours_of(folder, kind.native)
    theirs = theirs_of(kind, kind.native)["cls"]
    assert distance(ours, theirs) < TOLERANCE
    assert ours.shape[:2] == (kind.config.num_hidden_layers, 6)
    assert float(theirs.std(axis=-1).min()) > VISIBLE / 10, "uniform attention would show nothing"
    assert record["model"] == kind.name
    assert record["architecture"]["positions"] == kind.positions
    assert record["size"] == list(kind.native)


@ALL
@pytest.mark.parametrize("query", ["cls", "mean"])
def test_every_layer_and_head_at_a_size_that_is_not_square(
    kind, query, folder_of, theirs_of, ours_of
):
    """Positions are resized by the rule of transformers; the mean query takes in every row."""
    _, folder = folder_of(kind)
    ours, record = ours_of(folder, kind.other, "--size", "original", "--query", query)
    assert distance(ours, theirs_of(kind, kind.other)[query]) < TOLERANCE
    assert record["size"] == list(kind.other)


@pytest.mark.parametrize(
    ("name", "rule"), [("vit", "timm"), ("vit", "original"), ("dinov2", "original")]
)
def test_any_other_position_rule_is_not_what_transformers_computes(
    name, rule, folder_of, theirs_of, ours_of
):
    kind = BY_NAME[name]
    _, folder = folder_of(kind)
    ours, _ = ours_of(folder, kind.other, *FIRST, "--positions", rule)
    assert distance(ours, theirs_of(kind, kind.other)["cls"][:2]) > VISIBLE


@pytest.mark.parametrize("name", ["vit", "dinov2", "registers"])
def test_the_rule_hf_is_what_transformers_does_for_that_model(name, folder_of, theirs_of, ours_of):
    """With registers it is bicubic with antialias, else without."""
    kind = BY_NAME[name]
    _, folder = folder_of(kind)
    ours, record = ours_of(folder, kind.other, *FIRST, "--positions", "hf")
    assert distance(ours, theirs_of(kind, kind.other)["cls"][:2]) < TOLERANCE
    assert record["architecture"]["positions"] == "hf"


def test_query_and_key_swapped_fails(monkeypatch, folder_of, theirs_of, ours_of):
    join = huggingface._join_attention
    turn = {"q": "k", "k": "q"}

    def swapped(parts, *rest, **more):
        turned = {turn.get(name[0], name[0]) + name[1:]: part for name, part in parts.items()}
        join(turned, *rest, **more)

    monkeypatch.setattr(huggingface, "_join_attention", swapped)
    for kind in KINDS:
        ours, _ = ours_of(folder_of(kind)[1], kind.other, *FIRST)
        assert distance(ours, theirs_of(kind, kind.other)["cls"][:2]) > VISIBLE, kind.name


@pytest.mark.parametrize("name", ["registers", "dinov3"])
def test_registers_shifted_by_one_fails(name, monkeypatch, folder_of, theirs_of, ours_of):
    convert = huggingface.convert

    def shifted(*given):
        tensors, ignored = convert(*given)
        return tensors | {"reg_token": tensors["reg_token"].roll(1, dims=1)}, ignored

    monkeypatch.setattr(huggingface, "convert", shifted)
    kind = BY_NAME[name]
    ours, _ = ours_of(folder_of(kind)[1], kind.other, *FIRST)
    assert distance(ours, theirs_of(kind, kind.other)["cls"][:2]) > VISIBLE


def test_a_prefix_that_is_one_short_is_noticed(
    monkeypatch, folder_of, picture_of, tmp_path, capsys
):
    read = load.build.read_info

    def short(*given):
        info = read(*given)
        object.__setattr__(info, "prefix", info.prefix - 1)
        return info

    monkeypatch.setattr(load.build, "read_info", short)
    kind = BY_NAME["dinov3"]
    folder = folder_of(kind)[1]
    picture = picture_of(kind.other)
    assert attnviz("layers", picture, "--checkpoint", folder, "--out", tmp_path) == 1
    assert "expected 4 prefix tokens" in capsys.readouterr().err


def test_rotation_of_the_prefix_tokens_fails(monkeypatch, folder_of, theirs_of, ours_of):
    load_strictly = load.load_strictly

    def rotate_all(attn, args, kwargs):
        attn.num_prefix_tokens = 0
        kwargs["rope"] = torch.cat([kwargs["rope"][:5], kwargs["rope"]])
        return args, kwargs

    def loaded(module, checkpoint):
        for block in module.blocks:
            block.attn.register_forward_pre_hook(rotate_all, with_kwargs=True)
        return load_strictly(module, checkpoint)

    monkeypatch.setattr(load, "load_strictly", loaded)
    kind = BY_NAME["dinov3"]
    ours, _ = ours_of(folder_of(kind)[1], kind.other, *FIRST)
    assert distance(ours, theirs_of(kind, kind.other)["cls"][:2]) > VISIBLE


def test_biases_of_dinov3_are_used(folder_of, theirs_of, ours_of, monkeypatch):
    """transformers stores biases of query and value; without them the comparison fails."""
    kind = BY_NAME["dinov3"]
    model, folder = folder_of(kind)
    biases = [t for name, t in model.state_dict().items() if name.endswith("q_proj.bias")]
    assert len(biases) == 12
    assert all(float(bias.abs().min()) > 0 for bias in biases)
    separate = huggingface.separate_biases
    monkeypatch.setattr(
        huggingface,
        "separate_biases",
        lambda joined: separate({place: 0 * bias for place, bias in joined.items()}),
    )
    ours, _ = ours_of(folder, kind.other, *FIRST)
    assert distance(ours, theirs_of(kind, kind.other)["cls"][:2]) > VISIBLE


def copy_of(folder, where, **config):
    copied = Path(shutil.copytree(folder, where))
    edit_config(copied, **config)
    return copied


def reread(kind, folder):
    """The folder as transformers itself reads it."""
    return kind.model.from_pretrained(folder, attn_implementation="eager").eval()


def test_the_number_of_heads_is_that_of_the_config(
    folder_of, picture_of, theirs_of, ours_of, tmp_path
):
    """The same tensors are a model of 6 heads or of 3: only config.json tells."""
    kind = BY_NAME["deit"]
    _, folder = folder_of(kind)
    three = copy_of(folder, tmp_path / "three", num_attention_heads=3)
    ours, record = ours_of(three, kind.other, "--size", "original")
    assert (ours.shape[1], record["architecture"]["heads"]) == (3, 3)
    theirs = their_rows(reread(kind, three), kind, pixels_of(picture_of(kind.other)))["cls"]
    assert distance(ours, theirs) < TOLERANCE
    six = theirs_of(kind, kind.other)["cls"]
    assert float(np.abs(ours.mean(axis=1) - six.mean(axis=1)).max()) > VISIBLE


def test_the_norm_epsilon_is_that_of_the_config(
    folder_of, picture_of, ours_of, tmp_path, monkeypatch
):
    """A large epsilon, so that leaving it out is seen."""
    kind = BY_NAME["deit"]
    odd = copy_of(folder_of(kind)[1], tmp_path / "odd", layer_norm_eps=0.1)
    theirs = their_rows(reread(kind, odd), kind, pixels_of(picture_of(kind.other)))["cls"]
    ours, _ = ours_of(odd, kind.other, "--size", "original")
    assert distance(ours, theirs) < TOLERANCE
    monkeypatch.setattr(load, "_set_eps", lambda *_: None)
    ours, _ = ours_of(odd, kind.other, "--size", "original")
    assert distance(ours, theirs) > VISIBLE


@pytest.mark.parametrize("name", ["vit", "dinov2", "registers", "deit"])
def test_the_wrapper_of_a_classifier_changes_nothing(name, folder_of, ours_of, tmp_path):
    kind = BY_NAME[name]
    model, folder = folder_of(kind)
    wrapper = undrawn(kind.wrapper, kind.config)
    base = getattr(wrapper, wrapper.base_model_prefix)
    base.load_state_dict(model.state_dict(), strict=False)
    wrapper.save_pretrained(tmp_path / "wrapped")
    options = (*FIRST, "--mean", "0.4", "--std", "0.25")
    wrapped, record = ours_of(tmp_path / "wrapped", (112, 168), *options)
    plain, _ = ours_of(folder, (112, 168), *options)
    assert (wrapped == plain).all()
    assert record["model"] == "wrapped"


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.safetensors"])
def test_weights_of_either_format_and_the_file_itself(file, folder_of, ours_of, tmp_path):
    """The config beside a file counts for the file too."""
    kind = BY_NAME["deit"]
    model, folder = folder_of(kind)
    if file.endswith(".bin"):
        shutil.copy(folder / "config.json", tmp_path)
        torch.save(model.state_dict(), tmp_path / file)
        folder = tmp_path
    plain, _ = ours_of(folder_of(kind)[1], (112, 160), "--size", "original")
    for given in (folder, folder / file):
        ours, _ = ours_of(given, (112, 160), "--size", "original")
        assert (ours == plain).all()


def test_the_preprocessor_of_the_folder_is_followed(folder_of, picture_of, ours_of, tmp_path):
    """Mean and standard deviation against transformers' own processor; size and filter kept."""
    kind = BY_NAME["deit"]
    model, folder = folder_of(kind)
    copied = copy_of(folder, tmp_path / "copied")
    processor = transformers.ViTImageProcessor(
        image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.25, 0.3], resample=2,
        size={"height": 192, "width": 192},
    )  # fmt: skip
    processor.save_pretrained(copied)
    ours, record = ours_of(copied, (192, 192))
    given = processor(Image.open(picture_of((192, 192))), return_tensors="pt")["pixel_values"]
    assert distance(ours, their_rows(model, kind, given)["cls"]) < TOLERANCE
    info = record["architecture"]
    assert (info["mean"], info["std"]) == ([0.5, 0.4, 0.3], [0.2, 0.25, 0.3])
    assert (info["interpolation"], info["native_size"]) == ("bilinear", [192, 192])


@pytest.mark.parametrize(
    ("name", "model", "message"),
    [
        ("vit", "dino_vits16", "patch size 8 in the weights, 16 in dino_vits16"),
        ("vit", "dino_vitb8", "width 384 in the weights, 768 in dino_vitb8"),
        ("registers", "dinov2_vits14", "register tokens 4 in the weights, 0 in dinov2_vits14"),
        ("deit", "vit_tiny_patch16_224", "width 384 in the weights, 192 in vit_tiny_patch16_224"),
    ],
)
def test_a_model_that_disagrees_with_the_folder_states_both(
    name, model, message, folder_of, picture_of, capsys, tmp_path
):
    _, folder = folder_of(BY_NAME[name])
    code = attnviz(
        "heads", picture_of((112, 160)), "--checkpoint", folder, "--model", model,
        "--out", tmp_path,
    )  # fmt: skip
    assert code == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_heads_that_disagree_with_the_model_state_both(folder_of, picture_of, tmp_path, capsys):
    kind = BY_NAME["vit"]
    folder = copy_of(folder_of(kind)[1], tmp_path / "three", num_attention_heads=3)
    code = attnviz("heads", picture_of((112, 160)), "--checkpoint", folder, "--model", "dino_vits8")
    assert code == 1
    assert "heads 3 in the weights, 6 in dino_vits8" in capsys.readouterr().err


def test_the_model_may_be_named_too(folder_of, ours_of):
    kind = BY_NAME["dinov3"]
    folder = folder_of(kind)[1]
    named, _ = ours_of(folder, kind.other, *FIRST, "--model", "dinov3_vits16")
    plain, _ = ours_of(folder, kind.other, *FIRST)
    assert (named == plain).all()


def test_pixel_statistics_that_nobody_states_are_told(folder_of, picture_of, tmp_path, capsys):
    """A supervised model's may be ImageNet's or 0.5: without a preprocessor nobody knows."""
    quick = ("--size", "original", "--no-distance", "--dpi", 40, "--out", tmp_path)
    _, folder = folder_of(BY_NAME["deit"])
    attnviz("heads", picture_of((112, 160)), "--checkpoint", folder, *quick)
    said = capsys.readouterr().err
    assert "mean 0.485,0.456,0.406 and std 0.229,0.224,0.225 are assumed" in " ".join(said.split())


def test_a_folder_says_what_it_is(folder_of, picture_of, tmp_path, capsys):
    quick = ("--size", "original", "--no-distance", "--dpi", 40, "--out", tmp_path)
    _, folder = folder_of(BY_NAME["registers"])
    attnviz("heads", picture_of((112, 168)), "--checkpoint", folder, *quick)
    said = capsys.readouterr().err
    assert "registers: patch 14, width 384, 12 layers, 6 heads, 4 registers; " in said
    assert "175 of 175 tensors" in said
    assert "hf-dinov2-registers layout" in said


@pytest.mark.parametrize(
    ("make", "config", "kind"),
    [
        (transformers.YolosModel, transformers.YolosConfig, "yolos"),
        (transformers.SwinModel, transformers.SwinConfig, "swin"),
    ],
)
def test_another_model_of_transformers_is_refused_by_its_kind(
    make, config, kind, tmp_path, picture_of, capsys
):
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2}
    if kind == "swin":
        sizes = {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 1]}
    undrawn(make, config(**sizes, **({"num_hidden_layers": 1} if kind != "swin" else {}))
          ).save_pretrained(tmp_path)  # fmt: skip
    assert attnviz("heads", picture_of((112, 160)), "--checkpoint", tmp_path) == 1
    said = capsys.readouterr().err
    assert f"is of a '{kind}' model, which is not supported" in said
    assert "supported are vit, deit, vit_mae, vit_msn, ijepa, dinov2" in " ".join(said.split())
