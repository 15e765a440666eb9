"""The classifier that comes with weights, against the logits of the library it comes from."""

from __future__ import annotations

import numpy as np
import pytest
import timm
import torch
import transformers
from safetensors.torch import save_file

import attnviz
from attnviz.errors import CheckpointError
from tests.helpers.checkpoints import randomise

SIZES = {"depth": 2, "embed_dim": 64, "num_heads": 2, "img_size": 64, "num_classes": 7}
OURS = {"depth": 2, "width": 64, "heads": 2, "size": 64}
HF = {
    "hidden_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 256,
    "image_size": 64,
    "num_labels": 7,
    "attn_implementation": "eager",
}
CLS, MEAN = np.eye(17)[0], np.r_[0, np.full(16, 1 / 16)]
TIMM = {
    "vit_small_patch16_224": CLS,
    "deit_small_distilled_patch16_224": np.r_[0.5, 0.5, np.zeros(16)],
    "deit3_small_patch16_224": CLS,
    "vit_base_patch16_rpn_224": np.full(16, 1 / 16),
    "eva02_tiny_patch14_224": MEAN,
}


def batch(patch=16, seed=0):
    return torch.randn(2, 3, 4 * patch, 4 * patch, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", TIMM)
def test_logits_are_timms(tmp_path, name):
    patch = 14 if "patch14" in name else 16
    more = SIZES | {"img_size": 4 * patch}
    module = randomise(timm.create_model(name, dynamic_img_size=True, **more)).eval()
    save_file(module.state_dict(), tmp_path / "weights.safetensors")
    model = attnviz.load_model(
        name, checkpoint=tmp_path / "weights.safetensors", device="cpu",
        **OURS | {"size": 4 * patch},
    )  # fmt: skip
    assert model.info.classes == 7
    images = batch(patch)
    with torch.no_grad():
        ours, theirs = model.head.logits(model.run(images)), module(images)
    assert theirs.std() > 0.05
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.head.reads(len(TIMM[name])), TIMM[name], rtol=1e-6)


VIT = transformers.ViTConfig(**HF, patch_size=16)
FOLDERS = {
    "vit": (transformers.ViTForImageClassification, VIT, CLS),
    "deit": (
        transformers.DeiTForImageClassification,
        transformers.DeiTConfig(**HF, patch_size=16),
        np.eye(18)[0],
    ),
    "deit-teacher": (
        transformers.DeiTForImageClassificationWithTeacher,
        transformers.DeiTConfig(**HF, patch_size=16),
        np.r_[0.5, 0.5, np.zeros(16)],
    ),
    "dinov2": (
        transformers.Dinov2ForImageClassification,
        transformers.Dinov2Config(**HF, patch_size=16),
        np.r_[0.5, np.full(16, 1 / 32)],
    ),
    "registers": (
        transformers.Dinov2WithRegistersForImageClassification,
        transformers.Dinov2WithRegistersConfig(**HF, patch_size=16),
        np.r_[0.5, np.zeros(4), np.full(16, 1 / 32)],
    ),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_logits_are_those_of_transformers(tmp_path, kind):
    wrapper, config, reads = FOLDERS[kind]
    theirs = randomise(wrapper(config)).eval()
    theirs.save_pretrained(tmp_path)
    model = attnviz.load_model(checkpoint=tmp_path, device="cpu")
    assert model.info.classes == 7
    images = batch()
    with torch.no_grad():
        ours, expected = model.head.logits(model.run(images)), theirs(images).logits
    assert expected.std() > 0.05
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.head.reads(len(reads)), reads, rtol=1e-6)


def saved(tmp_path, edit, name="vit_small_patch16_224", **more):
    state = timm.create_model(name, **SIZES | more).state_dict()
    edit(state)
    save_file(state, tmp_path / "weights.safetensors")
    return attnviz.load_model(
        name, checkpoint=tmp_path / "weights.safetensors", device="cpu", **OURS
    )


def without(*names):
    return lambda state: [state.pop(name) for name in names]


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("vit_small_patch16_224", ("head.weight", "head.bias")),
        ("vit_base_patch16_rpn_224", ("fc_norm.weight", "fc_norm.bias")),
    ],
)
def test_what_is_not_in_the_file_is_no_classifier(tmp_path, name, gone):
    model = saved(tmp_path, without(*gone), name)
    assert (model.head, model.info.classes) == (None, 0)


def test_a_pool_by_attention_is_no_classifier_on_tokens(tmp_path):
    model = saved(tmp_path, without(), "vit_base_patch16_siglip_224")
    assert (model.head, model.info.classes) == (None, 0)


def test_a_classifier_without_bias_has_none(tmp_path):
    model = saved(tmp_path, without("head.bias"))
    with torch.no_grad():
        assert not model.head.logits(torch.zeros(1, 17, 64)).any()


def test_a_classifier_of_another_width_is_refused(tmp_path):
    def widen(state):
        state["head.weight"] = torch.zeros(7, 80)

    with pytest.raises(CheckpointError, match="its classifier reads 80 numbers"):
        saved(tmp_path, widen)


def test_an_untrained_model_and_the_demo_have_none():
    assert attnviz.load_model("demo").info.classes == 0
    untrained = attnviz.load_model("vit_small_patch16_224", random_weights=True, **OURS)
    assert (untrained.head, untrained.info.classes) == (None, 0)


def test_logits_are_float32_in_half_precision(tmp_path):
    state = timm.create_model("vit_small_patch16_224", **SIZES).state_dict()
    save_file(state, tmp_path / "weights.safetensors")
    model = attnviz.load_model(
        "vit_small_patch16_224", checkpoint=tmp_path / "weights.safetensors",
        precision="bfloat16", device="cpu", **OURS,
    )  # fmt: skip
    with torch.no_grad():
        logits = model.head.logits(model.run(batch()))
    assert logits.dtype == torch.float32
