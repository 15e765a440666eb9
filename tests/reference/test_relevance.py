"""Relevance through the command line, against transformers' own attention and its gradient.

``output_attentions`` in eager mode keeps every matrix, and ``retain_grad`` its gradient: then the
definitions are a few lines of numpy.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch.nn.functional import cosine_similarity

from tests.helpers.checkpoints import randomise
from tests.helpers.command_line import arrays, attnviz, meta
from tests.helpers.versions import OLD_TRANSFORMERS

SMALL = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 5,
    "intermediate_size": 256,
    "image_size": 64,
    "patch_size": 16,
    "num_labels": 7,
    "attn_implementation": "eager",
}
MODELS = {
    "vit": (transformers.ViTForImageClassification, transformers.ViTConfig(**SMALL), 1),
    "registers": (
        transformers.Dinov2WithRegistersForImageClassification,
        transformers.Dinov2WithRegistersConfig(**SMALL),
        5,
    ),
}
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
NORMALISED = ("--mean", ",".join(map(str, MEAN)), "--std", ",".join(map(str, STD)))


def chefer(attention, gradient):
    relevance = np.eye(attention.shape[-1])
    for matrix, weights in zip(attention, gradient, strict=True):
        relevance = relevance + np.mean(np.maximum(weights * matrix, 0), axis=0) @ relevance
    return relevance - np.eye(attention.shape[-1])


def gradient_rollout(attention, gradient):
    product = np.eye(attention.shape[-1])
    for matrix, weights in zip(attention, gradient, strict=True):
        fused = np.maximum(np.mean(weights * matrix, axis=0), 0) + np.eye(matrix.shape[-1])
        product = fused / fused.sum(axis=1)[:, None] @ product
    return product


DEFINITIONS = {"chefer": chefer, "gradient-rollout": gradient_rollout}


@pytest.fixture(scope="module", params=MODELS)
def saved(request, tmp_path_factory):
    """A classifier of transformers, the folder that it is saved in, and its prefix."""
    wrapper, config, prefix = MODELS[request.param]
    model = randomise(wrapper(config)).eval()
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    return model, folder, prefix


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for seed, name in enumerate(("first.png", "second.png")):
        noise = np.random.default_rng(seed).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / name)
    return folder / "first.png", folder / "second.png"


def tensor_of(path):
    pixels = (np.asarray(Image.open(path)) / 255 - MEAN) / STD
    return torch.tensor(pixels, dtype=torch.float32).permute(2, 0, 1)[None]


def watched(model, path, target):
    """The target's value, and attention and gradient of every layer (L, H, N, N), float64."""
    images = tensor_of(path).requires_grad_()
    output = model(images, output_attentions=True, output_hidden_states=True)
    for matrix in output.attentions:
        matrix.retain_grad()
    value = target(output)
    value.backward()
    attention = torch.stack([matrix[0] for matrix in output.attentions]).detach().double()
    gradient = torch.stack([matrix.grad[0] for matrix in output.attentions]).double()
    return value.item(), attention.numpy(), gradient.numpy()


def feature_of(model, hidden):
    backbone = model.base_model
    return backbone.layernorm(hidden)[:, 0]


@pytest.mark.parametrize("method", DEFINITIONS)
@pytest.mark.parametrize("target", ["class", "like"])
def test_relevance_is_that_of_transformers(saved, pictures, tmp_path, method, target):
    model, folder, prefix = saved
    if OLD_TRANSFORMERS and target == "like":
        pytest.skip("this version of transformers may norm the last hidden state")
    first, second = pictures
    reads = np.eye(16 + prefix)[0]
    if target == "class":
        value, *matrices = watched(model, first, lambda output: output.logits[0, 3])
        asked = ("--class", 3)
        if prefix > 1:
            reads = np.r_[0.5, np.zeros(prefix - 1), np.full(16, 1 / 32)]
    else:
        with torch.no_grad():
            other = model(tensor_of(second), output_hidden_states=True).hidden_states[-1]
            feature = feature_of(model, other)

        def likeness(output):
            return cosine_similarity(feature_of(model, output.hidden_states[-1]), feature)[0]

        value, *matrices = watched(model, first, likeness)
        asked = ("--like", second)
    code = attnviz(
        "relevance", first, "--checkpoint", folder, *asked, "--method", method, *NORMALISED,
        "--device", "cpu", "--save-data", "--out", tmp_path, "--dpi", 30,
    )  # fmt: skip
    assert code == 0
    found = arrays(tmp_path / "first.relevance.npz")
    expected = reads @ DEFINITIONS[method](*matrices)
    ours = np.concatenate([found["prefix"], found["relevance"].ravel()])
    np.testing.assert_allclose(ours, expected, rtol=2e-3, atol=1e-5 * np.abs(expected).max())
    assert found["value"] == pytest.approx(value, rel=1e-4)
    assert meta(tmp_path / "first.relevance.npz")["options"]["method"] == method
