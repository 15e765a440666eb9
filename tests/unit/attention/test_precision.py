"""Half precision against float32: maps of the models that users run, and where half is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import attnviz
from attnviz.attention.compute import compute
from attnviz.attention.relevance import reference_of
from attnviz.domain import FigureImage, Fusion, RelevanceMethod, RolloutOptions
from attnviz.domain.kinds import (
    HeadsRequest,
    LayersRequest,
    PatchRequest,
    RelevanceRequest,
    RolloutRequest,
    ScoreRequest,
)
from attnviz.domain.requests import ModelRequest
from attnviz.models.load import load_backbone
from attnviz.models.precision import cast
from tests.helpers.planted import backbone_of, tiny_vit

SAMPLES = Path(__file__).parents[3] / "sample_images"
PAPER = RolloutOptions(discard_ratio=0)
REQUESTS = {
    "heads": (HeadsRequest(), ("attention", "to_cls", "entropy", "token_entropy", "distance")),
    "layers": (LayersRequest(distance=False), ("attention", "prefix")),
    "patch": (PatchRequest(), ("attention", "prefix")),
    "rollout": (RolloutRequest(options=PAPER), ("rollout", "prefix")),
    "rollout of maxima": (
        RolloutRequest(options=RolloutOptions(discard_ratio=0, fusion=Fusion.MAX)),
        ("rollout",),
    ),
    "score": (ScoreRequest(), ("score", "cls_term", "patch_term")),
    **{
        f"relevance by {method}": (RelevanceRequest(like=Path("b"), method=method), ("relevance",))
        for method in RelevanceMethod
    },
}


@pytest.fixture(scope="module", params=["demo", "dino_vits8"])
def both(request):
    """A model in float32 and in bfloat16, an image and a second one: the real depth counts here."""
    name = request.param
    models = [
        load_backbone(
            ModelRequest(
                name=name, random_weights=name != "demo", device="cpu", precision=precision
            )
        )
        for precision in ("float32", "bfloat16")
    ]
    images = [
        attnviz.prepare(SAMPLES / file, models[0], size=96) for file in ("astronaut.jpg", "car.png")
    ]
    return models, images


@pytest.mark.parametrize("kind", list(REQUESTS))
def test_bfloat16_maps_are_within_a_hundredth_of_the_maximum(both, kind):
    """Discarding is left out: which values fall below a cut-off changes with any rounding."""
    models, (image, second) = both
    request, names = REQUESTS[kind]
    results = []
    for model in models:
        picture = FigureImage(second.image.pixels, second.geometry, "b")
        reference = reference_of(model, model.batch([second]), picture)
        needed = reference if isinstance(request, RelevanceRequest) else None
        results += compute(model, model.batch([image]), [image.geometry], request, needed)
    for name in names:
        exact, half = (getattr(maps, name) for maps in results)
        deviation = abs(exact - half).max() / abs(exact).max()
        assert 0 < deviation < 1e-2, name


def test_only_linear_layers_of_the_blocks_are_half():
    module = tiny_vit(registers=2).module
    cast(module, torch.bfloat16)
    half = {name for name, weight in module.state_dict().items() if weight.dtype != torch.float32}
    layers = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    assert half == {
        f"blocks.{block}.{layer}.{part}"
        for block in range(3)
        for layer in layers
        for part in ("weight", "bias")
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_are_half_and_tokens_float32(dtype):
    module = tiny_vit().module
    cast(module, dtype)
    seen = {}
    for name, part in module.named_modules():
        part.register_forward_hook(lambda _m, _i, out, name=name: seen.update({name: out.dtype}))
    tokens = backbone_of(module).run(torch.randn(1, 3, 32, 32))
    assert tokens.dtype is seen["patch_embed.proj"] is seen["blocks.1"] is torch.float32
    assert seen["blocks.1.attn.qkv"] is seen["blocks.1.mlp.fc2"] is dtype
    assert not torch.is_autocast_enabled("cpu")


def test_a_pass_that_fails_leaves_autocast_off_and_no_hook():
    backbone = tiny_vit()
    cast(backbone.module, torch.bfloat16)
    backbone = backbone_of(backbone.module)
    with pytest.raises(RuntimeError):
        backbone.run(torch.randn(1, 5, 32, 32))
    assert not torch.is_autocast_enabled("cpu")
    assert not backbone.module.patch_embed._forward_hooks
    assert not backbone.module.patch_embed._forward_pre_hooks


def test_whole_half_modules_run_too():
    """A module that somebody cast as a whole; its rows are still summed in float32."""
    batch = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    expected = compute(tiny_vit(), batch, [], LayersRequest())[0]
    whole = backbone_of(tiny_vit().module.bfloat16())
    maps = compute(whole, batch.bfloat16(), [], LayersRequest())[0]
    total = maps.attention.sum(axis=(2, 3)) + maps.prefix.sum(axis=2)
    assert abs(total - 1).max() < 1e-5
    np.testing.assert_allclose(maps.attention, expected.attention, atol=4e-2)
