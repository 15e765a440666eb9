"""Contributions to CLS against numbers worked by hand, and the sum that they are part of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from timm.layers import RmsNorm
from timm.models.vision_transformer import ParallelScalingBlock, ResPostBlock
from torch import nn
from torch.nn.functional import cosine_similarity

from attnviz.attention.contribution import along, cls_contributions
from attnviz.attention.relevance import reference_of, relevance_maps
from attnviz.domain import Box, FigureImage, FitGeometry, Size
from attnviz.domain.kinds import RelevanceRequest
from attnviz.errors import UnsupportedModelError, UsageError
from attnviz.models.head import ClassHead, Part
from tests.helpers.planted import backbone_of, dense_attention, tiny_vit

SECOND = FigureImage(
    np.zeros((32, 32, 3), np.uint8),
    FitGeometry(Size(32, 32), Size(32, 32), 8, Box(0, 0, 32, 32)),
    "second.png",
)
LIKE = RelevanceRequest(method="contribution", like="second.png")


def noise(images=1, seed=1):
    return torch.randn(images, 3, 24, 40, generator=torch.Generator().manual_seed(seed))


def dinov3():
    torch.manual_seed(0)
    module = timm.create_model(
        "vit_small_patch16_dinov3", embed_dim=64, num_heads=2, depth=3, num_classes=0,
        patch_size=8, dynamic_img_size=True,
    )  # fmt: skip
    for block in module.blocks:
        nn.init.normal_(block.attn.qkv.weight, std=0.3)
        nn.init.uniform_(block.gamma_1, 0.2, 0.8)
        nn.init.uniform_(block.gamma_2, 0.2, 0.8)
    return backbone_of(module.eval().requires_grad_(False), registers=4)


def test_two_tokens_by_hand():
    """CLS is (1, -1): mean 0, deviation 1. The direction (3, 0), scaled by the norm to (6, 0) and
    centred to (3, -3), meets what the tokens write, (2, 0) and (0, 4).
    """
    norm = nn.LayerNorm(2, eps=0)
    nn.init.constant_(norm.weight, 2.0)
    written = torch.tensor([[[2.0, 0.0], [0.0, 4.0]]])
    found = along(norm, torch.tensor([[3.0, 0.0]]), torch.tensor([[1.0, -1.0]]), written)
    assert found.tolist() == [[6.0, -12.0]]


@pytest.mark.parametrize("heads", [(0, 1), (1,)])
def test_what_is_written_is_attention_times_value_times_projection(heads):
    backbone = tiny_vit(registers=2, init_values=0.5)
    batch = noise(2)
    attention = dense_attention(backbone, batch)[:, :, :, 0]  # L, B, H, N
    inputs = []
    handles = [
        block.attn.register_forward_pre_hook(lambda _m, args: inputs.append(args[0]))
        for block in backbone.blocks
    ]
    with torch.no_grad():
        backbone.run(batch)
    for handle in handles:
        handle.remove()
    expected = torch.zeros(2, 18, 32)
    for block, rows, tokens in zip(backbone.blocks, attention, inputs, strict=True):
        value = block.attn.qkv(tokens)[..., 64:]  # B, N, width
        for head in heads:
            part = slice(16 * head, 16 * head + 16)
            into = value[..., part] @ block.attn.proj.weight[:, part].T
            expected += 0.5 * rows[:, head, :, None] * into
    written, _, _ = cls_contributions(backbone, batch, heads)
    torch.testing.assert_close(written, expected, rtol=1e-4, atol=1e-5)


def parts_of_cls(backbone, batch):
    """CLS as it enters the first block, what every MLP adds to it, and what biases add."""
    found = []
    first = backbone.blocks[0]
    handles = [first.register_forward_pre_hook(lambda _m, args: found.append(args[0][:, 0]))]
    for block in backbone.blocks:
        scale = block.ls2.gamma if hasattr(block, "ls2") else block.gamma_2
        handles.append(
            block.mlp.register_forward_hook(
                lambda _m, _i, out, scale=scale: found.append(scale * out[:, 0])
            )
        )
        scale = block.ls1.gamma if hasattr(block, "ls1") else block.gamma_1
        found.append((scale * block.attn.proj.bias)[None])
    with torch.no_grad():
        backbone.run(batch)
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("make", [lambda: tiny_vit(registers=3, init_values=0.5), dinov3])
@pytest.mark.parametrize("target", ["like", "class"])
def test_contributions_and_the_rest_add_up_to_the_target(make, target):
    """The cosine or the logit is exactly the tokens' contributions, the MLPs', the biases' and the
    embedding's.
    """
    backbone = make()
    batch, second = noise(2), noise(seed=2)
    width = backbone.info.width
    weight = torch.randn(5, width, generator=torch.Generator().manual_seed(4))
    bias = torch.arange(5.0)
    backbone.head = ClassHead((Part(slice(0, 1), weight),), bias, nn.Identity())
    backbone.info = replace(backbone.info, classes=5)
    reference = reference_of(backbone, second, SECOND) if target == "like" else None
    request = LIKE if target == "like" else RelevanceRequest("contribution", class_index=3)
    with torch.no_grad():
        cls, other = backbone.run(batch)[:, 0], backbone.run(second)[:, 0]
    if target == "like":
        value = cosine_similarity(cls, other)
        direction = other / other.norm() / cls.norm(dim=-1, keepdim=True)
        rest = direction @ backbone.norm.bias
    else:
        value = cls @ weight[3] + 3
        direction = weight[3].expand(2, -1)
        rest = direction @ backbone.norm.bias + 3
    _, last, _ = cls_contributions(backbone, batch, (0, 1))
    for part in parts_of_cls(backbone, batch):
        each = part.expand(2, -1)[:, None]
        rest = rest + along(backbone.norm, direction, last, each)[:, 0]
    for image, maps in enumerate(relevance_maps(backbone, batch, request, reference)):
        assert maps.value == pytest.approx(float(value[image]), rel=1e-4)
        together = maps.relevance.sum() + maps.prefix.sum()
        assert abs(together) > 1e-3
        assert together + float(rest[image]) == pytest.approx(maps.value, abs=3e-4)
        assert maps.signed
        assert maps.relevance.min() < 0 < maps.relevance.max()


def test_heads_add_up():
    backbone = tiny_vit()
    reference = reference_of(backbone, noise(seed=2), SECOND)
    both, first, second = (
        relevance_maps(backbone, noise(), replace(LIKE, heads=heads), reference)[0].relevance
        for heads in (None, (0,), (1,))
    )
    np.testing.assert_allclose(first + second, both, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"block_fn": ResPostBlock}, "do not simply add"),
        ({"block_fn": ParallelScalingBlock}, "do not simply add"),
        ({"norm_layer": RmsNorm}, "does not end in a layer norm"),
    ],
)
def test_models_that_do_not_add_are_refused(model, message):
    more = {"init_values": 0.5} if model.get("block_fn") is ResPostBlock else {}
    torch.manual_seed(0)
    module = timm.models.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=0,
        dynamic_img_size=True, **model, **more,
    )  # fmt: skip
    backbone = backbone_of_any(module.eval().requires_grad_(False))
    reference = reference_of(backbone, noise(seed=2), SECOND)
    with pytest.raises(UnsupportedModelError, match=message):
        relevance_maps(backbone, noise(), LIKE, reference)
    assert not any(
        module._forward_pre_hooks or module._forward_hooks for module in module.modules()
    )


def backbone_of_any(module):
    """A Backbone, also of blocks that are their own attention."""
    if not hasattr(module.blocks[0], "attn"):
        object.__setattr__(module.blocks[0], "attn", module.blocks[0])
        backbone = backbone_of(module)
        object.__delattr__(module.blocks[0], "attn")
        return backbone
    return backbone_of(module)


def test_a_target_beside_cls_is_refused():
    backbone = tiny_vit(cls=False)
    reference = reference_of(backbone, noise(seed=2), SECOND)
    with pytest.raises(UsageError, match="not read from CLS alone"):
        relevance_maps(backbone, noise(), LIKE, reference)
    backbone = tiny_vit()
    head = ClassHead((Part(slice(1, None), torch.ones(5, 32)),), torch.zeros(5), nn.Identity())
    backbone.head, backbone.info = head, replace(backbone.info, classes=5)
    with pytest.raises(UsageError, match="not read from CLS alone"):
        relevance_maps(backbone, noise(), RelevanceRequest("contribution", class_index=1), None)
