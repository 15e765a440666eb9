"""Whole matrices, queries, keys and values of folders of the transformers library, against it.

Attention is that of ``output_attentions`` in eager mode; queries, keys and values are what the
library's own linear layers put out, which no rotary embedding changes afterwards but DINOv3's.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from attnviz.domain import Size
from tests.helpers.checkpoints import randomise, undrawn
from tests.helpers.command_line import arrays, attnviz

transformers.utils.logging.disable_progress_bar()

SMALL = {
    "hidden_size": 48,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "attn_implementation": "eager",
    "image_size": 64,
}
KINDS = {
    "vit": (
        transformers.ViTModel,
        transformers.ViTConfig(**SMALL, intermediate_size=96, patch_size=8),
        8,
        1,
    ),
    "registers": (
        transformers.Dinov2WithRegistersModel,
        transformers.Dinov2WithRegistersConfig(**SMALL | {"image_size": 56}, patch_size=14),
        14,
        5,
    ),
    "dinov3": (
        transformers.DINOv3ViTModel,
        transformers.DINOv3ViTConfig(
            **SMALL, intermediate_size=96, patch_size=16, num_register_tokens=4
        ),
        16,
        5,
    ),
}
NAMES = {"query": ("query", "q_proj"), "key": ("key", "k_proj"), "value": ("value", "v_proj")}


@pytest.fixture(scope="module", params=KINDS)
def case(request, tmp_path_factory):
    """A folder, a picture at the native size, and the library's own numbers of the last layer."""
    model_class, config, patch, prefix = KINDS[request.param]
    model = randomise(undrawn(model_class, config))
    folder = tmp_path_factory.mktemp("hf") / request.param
    model.save_pretrained(folder)
    side = config.image_size
    noise = np.random.default_rng(7).integers(0, 256, (side, side, 3), dtype=np.uint8)
    picture = folder.parent / "noise.png"
    Image.fromarray(noise).save(picture)
    values = (noise / 255 - [0.4, 0.5, 0.6]) / 0.25
    pixels = torch.from_numpy(values.astype(np.float32).transpose(2, 0, 1).copy())[None]
    seen, handles = {}, []
    for path, module in model.named_modules():
        for name, endings in NAMES.items():
            if path.rsplit(".", 1)[-1] in endings and isinstance(module, torch.nn.Linear):
                hook = module.register_forward_hook(
                    lambda _m, _i, out, name=name: seen.__setitem__(name, out)
                )
                handles.append(hook)
    with torch.inference_mode():
        attention = model(pixels, output_attentions=True).attentions[-1][0].numpy()
    for handle in handles:
        handle.remove()
    assert len(handles) == 3 * config.num_hidden_layers
    split = {name: out[0].unflatten(-1, (3, 16)).transpose(0, 1) for name, out in seen.items()}
    return SimpleNamespace(
        name=request.param,
        folder=folder,
        picture=picture,
        grid=Size(side // patch, side // patch),
        prefix=prefix,
        attention=attention,
        vectors={name: tensor.numpy() for name, tensor in split.items()},
    )


def saved(case, command, out):
    code = attnviz(
        command, case.picture, "--checkpoint", case.folder, "--mean", "0.4,0.5,0.6", "--std", 0.25,
        "--save-data", "--quiet", "--dpi", 40, "--out", out,
    )  # fmt: skip
    assert code == 0
    return arrays(out / f"noise.{command}.npz")


def test_matrices_are_those_of_the_library(case, tmp_path):
    found = saved(case, "matrix", tmp_path)
    assert found["attention"] == pytest.approx(case.attention, abs=1e-5)
    shifted = np.exp(found["logits"] - found["logits"].max(axis=2, keepdims=True))
    assert shifted / shifted.sum(axis=2, keepdims=True) == pytest.approx(case.attention, abs=1e-5)
    to_cls = case.attention[:, case.prefix :, 0].reshape(3, *case.grid)
    assert found["to_cls"] == pytest.approx(to_cls, abs=1e-5)
    if case.name != "dinov3":
        query, key = case.vectors["query"], case.vectors["key"]
        logits = query @ key.swapaxes(1, 2) / 4  # heads are 16 wide
        assert found["logits"] == pytest.approx(logits, abs=1e-4)


def test_queries_keys_and_values_are_those_of_the_library(case, tmp_path):
    found = saved(case, "qkv", tmp_path)
    for name, vectors in case.vectors.items():
        lengths = np.linalg.norm(vectors, axis=2)
        assert found[f"{name}_norm"] == pytest.approx(lengths, rel=1e-4)
        if case.name == "dinov3" and name != "value":
            # Rotated by place: other vectors of the same length, but for the prefix.
            assert found[name][:, :5] == pytest.approx(vectors[:, :5], abs=1e-4)
            assert np.abs(found[name][:, 5:] - vectors[:, 5:]).max() > 0.1 * lengths.mean()
        else:
            assert found[name] == pytest.approx(vectors, abs=1e-4)
        joined = vectors[:, case.prefix :].transpose(1, 0, 2).reshape(-1, 48).astype(np.float64)
        if case.name == "dinov3" and name != "value":
            continue
        _, stretch, axes = np.linalg.svd(joined - joined.mean(axis=0), full_matrices=False)
        ratios = stretch**2 / (stretch**2).sum()
        assert found[f"{name}_explained_all"] == pytest.approx(ratios[:3], rel=1e-3)
        first = (joined - joined.mean(axis=0)) @ axes[0]
        first *= np.sign(axes[0][np.abs(axes[0]).argmax()])
        drawn = found[f"{name}_pca_all"][..., 0].ravel()
        assert drawn == pytest.approx(first, abs=1e-2 * np.abs(first).max())
