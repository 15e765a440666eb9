"""Bare files of trainings that are not DINO's: what they are called, and what is read from them.

I-JEPA and fine-tuned ViTs (whichever final norm and CLS token the file has), MAE, torchvision and
open_clip, small and written as these trainings write them.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import timm
import torch
import torchvision
from PIL import Image

import attnviz as package
from attnviz.attention.capture import capture
from attnviz.errors import CheckpointError
from tests.helpers import formula_weights
from tests.helpers.checkpoints import original, prefixed
from tests.helpers.command_line import attnviz, meta
from tests.reference.unfused import peaked, unfused

TOLERANCE = 1e-5
SMALL = {"img_size": 64, "embed_dim": 96, "depth": 3, "num_heads": 3, "num_classes": 0}


def matrices(model, batch):
    found = []

    def take(call):
        found.append(call.rows(torch.arange(call.query.shape[-2]))[0])

    capture(model, batch, model.info.depth - 1, take)
    return torch.stack(found).numpy()


def pixels(rows=4, columns=4, patch=16):
    generator = torch.Generator().manual_seed(6)
    return torch.randn(1, 3, patch * rows, patch * columns, generator=generator)


def vit(name="vit_small_patch16_224", **more):
    return peaked(timm.create_model(name, dynamic_img_size=True, **(SMALL | more)))


def loaded(tmp_path, content, name=None, file="weights.pth", **more):
    torch.save(content, tmp_path / file)
    return package.load_model(name, checkpoint=tmp_path / file, device="cpu", **more)


def ijepa(module):
    """As I-JEPA saves: the norm on all tokens is called norm, there is no CLS token."""
    state = {name.replace("fc_norm", "norm"): t for name, t in module.state_dict().items()}
    worse = {name: tensor + 0.3 * torch.cos(7 * tensor) for name, tensor in state.items()}
    return {
        "encoder": prefixed("module.", worse),
        "target_encoder": prefixed("module.", state),
        "predictor": {"module.mask_token": torch.zeros(1, 1, 48)},
        "opt": {}, "scaler": None, "epoch": 300, "lr": 0.001,
    }  # fmt: skip


@pytest.mark.parametrize("named", [False, True])
def test_ijepa_has_no_class_token_and_a_norm_on_all_tokens(named, tmp_path):
    """Its averaged network, by the file alone and under the name of a ViT that has a CLS token."""
    module = vit(class_token=False, global_pool="avg")
    sizes = {k: SMALL[v] for k, v in (("width", "embed_dim"), ("depth", "depth"))} if named else {}
    model = loaded(
        tmp_path, ijepa(module), "vit_small_patch16_224" if named else None,
        file="ijepa-300.pth.tar", heads=3, **sizes,
    )  # fmt: skip
    assert (model.info.prefix, model.info.has_cls) == (0, False)
    assert model.info.weights == "ijepa-300.pth.tar (target_encoder)"
    for grid in ((4, 4), (3, 5)):
        batch = pixels(*grid)
        expected = unfused(module, lambda batch=batch: module.forward_features(batch))
        assert np.abs(matrices(model, batch) - expected).max() < TOLERANCE
    with torch.inference_mode():
        tokens = model.run(pixels())
        exact = module.fc_norm(module.forward_features(pixels()))
    assert float((tokens - exact).abs().max()) < 1e-4, "the file's norm is the last"


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("class_token", [True, False])
def test_a_norm_behind_the_pooling_is_left_there(class_token, named, tmp_path):
    """Fine-tuned with the mean patch: fc_norm, and no norm on the tokens."""
    module = vit(class_token=class_token, global_pool="avg")
    state = module.state_dict()
    assert "fc_norm.weight" in state
    assert "norm.weight" not in state
    head = {"head.weight": torch.randn(5, 96), "head.bias": torch.zeros(5)}
    sizes = {"width": 96, "depth": 3} if named else {}
    model = loaded(
        tmp_path, {"model": state | head}, "vit_small_patch16_224" if named else None, heads=3,
        **sizes,
    )  # fmt: skip
    assert model.info.has_cls is class_token
    batch = pixels(3, 5)
    expected = unfused(module, lambda: module.forward_features(batch))
    assert np.abs(matrices(model, batch) - expected).max() < TOLERANCE
    with torch.inference_mode():
        tokens = model.run(batch)
        assert float((tokens - module.forward_features(batch)).abs().max()) < 1e-4
        if not (named and class_token):  # timm's model of that name reads CLS
            assert model.head is not None
            logits = module.forward_head(tokens, pre_logits=True) @ head["head.weight"].T
            assert float((model.head.logits(tokens) - logits).abs().max()) < 1e-4


def test_a_file_that_lost_its_norm_is_refused(tmp_path):
    state = {k: v for k, v in vit().state_dict().items() if not k.startswith("norm.")}
    with pytest.raises(CheckpointError, match=r"first missing: norm\.weight"):
        loaded(tmp_path, state, heads=3)


def test_a_named_model_of_the_catalogue_keeps_its_class_token(tmp_path):
    state = formula_weights.state_dict("dino_vits16")
    del state["cls_token"]
    state["pos_embed"] = state["pos_embed"][:, 1:].clone()
    with pytest.raises(CheckpointError, match="CLS tokens 0 in the weights, 1 in dino_vits16"):
        loaded(tmp_path, state, "dino_vits16")


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "noise.png"
    noise = np.random.default_rng(3).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    return path


def foot(picture, *options):
    """The words of the figure, and its record."""
    out = picture.parent / "out"
    code = attnviz("heads", picture, "--size", "original", "--format", "svg", "--save-data",
                   "--no-distance", "--overwrite", "--quiet", "--out", out, *options)  # fmt: skip
    assert code == 0
    text = (out / "noise.heads.svg").read_text()
    words = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", text))
    return re.sub(r"\s+", " ", words), meta(out / "noise.heads.npz")


def test_weights_of_a_known_shape_are_called_by_their_file(tmp_path, picture):
    """MAE's have every name and shape of DINO's; the figure says what is known and no more."""
    state = formula_weights.state_dict("dino_vits16")
    file = tmp_path / "mae_pretrain_vit_small.pth"
    torch.save({"model": state}, file)
    words, record = foot(picture, "--checkpoint", file)
    assert "mae_pretrain_vit_small.pth, shape of ViT-S/16" in words
    assert "mean and std assumed" in words
    assert "dino" not in words
    assert record["model"] == "mae_pretrain_vit_small.pth"
    architecture = record["architecture"]
    assert (architecture["shape"], architecture["statistics_assumed"]) == ("ViT-S/16", True)
    given = ("--mean", "0.5,0.5,0.5", "--std", "0.25,0.25,0.25")
    words, record = foot(picture, "--checkpoint", file, *given)
    assert "assumed" not in words
    assert record["architecture"]["statistics_assumed"] is False
    words, record = foot(picture, "--checkpoint", file, "--model", "dino_vits16")
    assert record["model"] == "dino_vits16", "who names the model vouches for it"
    assert "assumed" not in words
    assert "shape of" not in words


def test_the_authors_own_file_is_called_by_its_model(tmp_path, picture):
    file = tmp_path / "dino_deitsmall16_pretrain.pth"
    torch.save(formula_weights.state_dict("dino_vits16"), file)
    words, record = foot(picture, "--checkpoint", file)
    assert record["model"] == "dino_vits16"
    assert "assumed" not in words


def test_a_size_without_a_letter_is_called_by_its_file_alone(tmp_path):
    model = loaded(tmp_path, original(), file="own.pth", heads=2)
    assert (model.info.title, model.info.shape) == ("own.pth", "")


TORCHVISION = {"image_size": 64, "patch_size": 16, "num_layers": 2, "num_heads": 12,
               "hidden_dim": 768, "mlp_dim": 256, "num_classes": 7}  # fmt: skip


def torchvisions(module, batch):
    """Every matrix (L, H, N, N) by torchvision's own layers, asked for their weights."""
    found = []

    def ask(_module, _args, kwargs):
        return _args, kwargs | {"need_weights": True, "average_attn_weights": False}

    hooks = []
    for layer in module.encoder.layers:
        attend = layer.self_attention
        hooks.append(attend.register_forward_pre_hook(ask, with_kwargs=True))
        hooks.append(attend.register_forward_hook(lambda _m, _a, out: found.append(out[1][0])))
    with torch.inference_mode():
        logits = module(batch)
    for hook in hooks:
        hook.remove()
    return torch.stack(found).numpy(), logits


@pytest.fixture(scope="module")
def torchvision_vit():
    module = torchvision.models.VisionTransformer(**TORCHVISION)
    peaked(module)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        for token in (module.class_token, module.encoder.pos_embedding):
            token.copy_(0.5 * torch.randn(token.shape, generator=generator))
        module.heads.head.weight.copy_(torch.randn(7, 768, generator=generator) / 28)
    return module


def test_files_of_torchvision(torchvision_vit, tmp_path):
    """Names of torchvision's vit_b_16; the head count is that of its only ViT of this width."""
    state = torchvision_vit.state_dict()
    assert "encoder.layers.encoder_layer_0.self_attention.in_proj_weight" in state
    model = loaded(tmp_path, state, file="vit_b_16-c867db91.pth")
    assert (model.info.heads, model.info.has_cls, model.info.native_size) == (12, True, (64, 64))
    assert model.info.mean == (0.485, 0.456, 0.406)
    expected, logits = torchvisions(torchvision_vit, pixels())
    assert np.abs(matrices(model, pixels()) - expected).max() < TOLERANCE
    assert expected.std() > 0.02
    assert model.head is not None
    with torch.inference_mode():
        ours = model.head.logits(model.run(pixels()))
    assert float((ours - logits).abs().max()) < 1e-4
    swapped = dict(state)
    name = "encoder.layers.encoder_layer_1.self_attention.in_proj_weight"
    query, key, value = state[name].chunk(3)
    swapped[name] = torch.cat([key, query, value])
    other = loaded(tmp_path, swapped, file="swapped.pth")
    assert np.abs(matrices(other, pixels()) - expected).max() > 1e-3


def test_files_of_torchvision_under_a_name_and_in_older_spelling(torchvision_vit, tmp_path):
    state = {
        name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): tensor
        for name, tensor in torchvision_vit.state_dict().items()
    }
    assert any("linear_1" in name for name in state)
    model = loaded(tmp_path, {"model": state}, "vit_base_patch16_224", depth=2)
    expected, _ = torchvisions(torchvision_vit, pixels())
    assert np.abs(matrices(model, pixels()) - expected).max() < TOLERANCE


def openai(module):
    """timm's CLIP tower in the names of open_clip, beside a text tower."""
    out = {}
    for name, tensor in module.state_dict().items():
        for ours, theirs in (
            (r"^cls_token$", "class_embedding"), (r"^pos_embed$", "positional_embedding"),
            (r"^patch_embed\.proj\.", "conv1."), (r"^norm_pre\.", "ln_pre."),
            (r"^norm\.", "ln_post."), (r"^blocks\.(\d+)\.", r"transformer.resblocks.\1."),
            (r"\.norm([12])\.", r".ln_\1."), (r"\.attn\.qkv\.", ".attn.in_proj_"),
            (r"\.attn\.proj\.", ".attn.out_proj."), (r"\.mlp\.fc1\.", ".mlp.c_fc."),
            (r"\.mlp\.fc2\.", ".mlp.c_proj."),
        ):  # fmt: skip
            name = re.sub(ours, theirs, name)  # noqa: PLW2901
        flat = name in ("class_embedding", "positional_embedding")
        out[f"visual.{name}"] = tensor.squeeze() if flat else tensor
    out["visual.proj"] = torch.zeros(128, 32)
    text = {"positional_embedding": torch.zeros(77, 16), "ln_final.weight": torch.ones(16),
            "transformer.resblocks.0.attn.in_proj_weight": torch.zeros(48, 16),
            "logit_scale": torch.tensor(1.0)}  # fmt: skip
    return out | text


@pytest.mark.parametrize("quick", [True, False])
def test_files_of_open_clip_need_a_name_for_their_activation(quick, tmp_path):
    name = f"vit_base_patch16_clip{'_quickgelu' if quick else ''}_224"
    sizes = {"img_size": 64, "embed_dim": 128, "depth": 3, "num_heads": 2}
    module = peaked(timm.create_model(name, num_classes=0, dynamic_img_size=True, **sizes))
    state = openai(module)
    assert "visual.transformer.resblocks.2.mlp.c_fc.bias" in state
    with pytest.raises(CheckpointError, match="does not say which activation") as caught:
        loaded(tmp_path, state)
    assert "--model vit_base_patch16_clip_quickgelu_224" in caught.value.hint
    model = loaded(tmp_path, state, name, width=128, depth=3, heads=2)
    assert model.info.mean == (0.48145466, 0.4578275, 0.40821073)
    batch = pixels(3, 5)
    expected = unfused(module, lambda: module.forward_features(batch))
    assert np.abs(matrices(model, batch) - expected).max() < TOLERANCE


def test_no_message_says_of_a_vit_that_it_is_none(tmp_path):
    """What is not known is said to be not known."""
    unknown = {
        "to_patch_embedding.1.weight": torch.zeros(4, 4),
        "pos_embedding": torch.zeros(1, 5, 4),
    }
    with pytest.raises(CheckpointError, match="in no known layout of a Vision Transformer"):
        loaded(tmp_path, unknown)
