"""Attention calls with chosen matrices, and small models."""

from __future__ import annotations

import numpy as np
import timm
import torch

from attnviz.attention.capture import AttentionCall
from attnviz.domain import ModelInfo, Positions, Size
from attnviz.models.backbone import Backbone
from attnviz.models.build import pool_heads


def planted_call(matrices, layer=0):
    """A call whose softmax is the given matrices (H, N, N) or (N, N), with zeros allowed.

    With key = identity and scale 1 the logits are the queries, so log A as query gives A.
    """
    matrices = torch.as_tensor(np.asarray(matrices), dtype=torch.float32)
    if matrices.dim() == 2:
        matrices = matrices[None]
    heads, tokens, _ = matrices.shape
    query = matrices.clamp_min(1e-30).log()[None]
    identity = torch.eye(tokens).expand(1, heads, tokens, tokens).contiguous()
    return AttentionCall(layer, query, identity, identity, None, 1.0)


def random_stochastic(rng, *shape):
    """Random rows that sum to 1, peaked like attention."""
    values = np.exp(2 * rng.standard_normal(shape))
    return values / values.sum(axis=-1, keepdims=True)


def tiny_vit(*, registers=0, depth=3, heads=2, cls=True, patch=8, size=32, seed=0, **more):
    """A small timm ViT with peaked attention, and its Backbone."""
    torch.manual_seed(seed)
    module = timm.models.VisionTransformer(
        img_size=size,
        patch_size=patch,
        embed_dim=16 * heads,
        depth=depth,
        num_heads=heads,
        num_classes=0,
        class_token=cls,
        global_pool="token" if cls else "avg",
        reg_tokens=registers,
        no_embed_class=registers > 0,
        dynamic_img_size=True,
        **more,
    )
    for block in module.blocks:
        torch.nn.init.normal_(block.attn.qkv.weight, std=0.3)
    torch.nn.init.normal_(module.pos_embed, std=0.5)
    module = module.eval().requires_grad_(False)
    return backbone_of(module, registers=registers, cls=cls)


def backbone_of(module, *, registers=0, cls=True, name="tiny"):
    """A Backbone around a timm module, with hand-written model info."""
    patch = module.patch_embed.patch_size[0]
    info = ModelInfo(
        name=name,
        timm_name=name,
        patch=patch,
        width=module.embed_dim,
        depth=len(module.blocks),
        heads=module.blocks[0].attn.num_heads,
        prefix=module.num_prefix_tokens,
        registers=registers,
        has_cls=cls,
        native_size=Size(*module.patch_embed.img_size),
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        interpolation="bicubic",
        positions=Positions.TIMM,
        weights="random weights",
        random_weights=True,
        pool_heads=pool_heads(module),
    )
    return Backbone(module, info, offset=False)


def dense_attention(backbone, batch):
    """Every matrix (L, B, H, N, N), by timm's own unfused code: an independent implementation."""
    matrices = []
    modules = [block.attn for block in backbone.module.blocks]
    handles = [
        module.attn_drop.register_forward_hook(lambda _m, _i, out: matrices.append(out))
        for module in modules
    ]
    before = [module.fused_attn for module in modules]
    for module in modules:
        module.fused_attn = False
    try:
        with torch.no_grad():
            backbone.run(batch)
    finally:
        for handle in handles:
            handle.remove()
        for module, fused in zip(modules, before, strict=True):
            module.fused_attn = fused
    return torch.stack(matrices)


def plain_qkv(backbone, batch, layer):
    """Queries, keys, values (3, B, H, N, d) float64: the output of the block's own projection.

    Before any q/k norm or rotary embedding.
    """
    outputs = []
    attention = backbone.module.blocks[layer].attn
    handle = attention.qkv.register_forward_hook(lambda _m, _i, out: outputs.append(out))
    with torch.no_grad():
        backbone.module.forward_features(batch)
    handle.remove()
    images, tokens, width = outputs[0].shape
    heads = attention.num_heads
    parts = outputs[0].double().numpy().reshape(images, tokens, 3, heads, width // 3 // heads)
    return parts.transpose(2, 0, 3, 1, 4)
