"""Checkpoint files of every layout, small or at full size, and attention written out by hand."""

from __future__ import annotations

import json
import math
from unittest.mock import patch

import numpy as np
import timm
import torch
from timm.layers import apply_rot_embed_cat
from torch import nn

from tests.helpers import formula_weights

WIDTH, DEPTH, HEADS, PATCH, GRID = 64, 4, 2, 8, 4
IMAGE = PATCH * GRID


def original(layout="dino", *, registers=0, seed=0, depth=DEPTH, width=WIDTH, patch=PATCH):
    """A small state dict in the original layout of DINO or DINOv2; ``seed`` gives other weights."""
    shapes = formula_weights.shapes_of(layout, width, depth, HEADS, patch, GRID, registers)
    tensors = {name: formula_weights.tensor(name, shape) for name, shape in shapes.items()}
    if seed:
        tensors = {name: tensor + 0.1 * seed * tensor.cos() for name, tensor in tensors.items()}
    return tensors


def meta_dinov3(*, gated=False, bias=0.0, key_bias=0.0, masked=True, width=WIDTH, depth=2, seed=0):
    """A small state dict in Meta's layout of DINOv3, spelled out."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape, scale=None):
        return torch.randn(*shape, generator=rng) * (scale or 1 / math.sqrt(shape[-1]))

    periods = 100 ** (torch.arange(width // HEADS // 4) / (width // HEADS // 4))
    tensors = {
        "cls_token": normal(1, 1, width, scale=0.5),
        "storage_tokens": normal(1, 4, width, scale=0.5),
        "mask_token": torch.zeros(1, width),
        "patch_embed.proj.weight": normal(width, 3, PATCH, PATCH, scale=0.1),
        "patch_embed.proj.bias": normal(width, scale=0.1),
        "rope_embed.periods": periods.bfloat16(),
        "norm.weight": 1 + normal(width, scale=0.1),
        "norm.bias": normal(width, scale=0.1),
    }
    for i in range(depth):
        block = f"blocks.{i}."
        query, key, value = (normal(width, scale=s) for s in (bias, key_bias, bias))
        mask = torch.cat([torch.ones(width), torch.zeros(width), torch.ones(width)])
        tensors |= {
            block + "attn.qkv.weight": 1.6 * normal(3 * width, width),
            block + "attn.qkv.bias": torch.cat([query * bool(bias), key * bool(key_bias),
                                                value * bool(bias)]),
            block + "attn.proj.weight": normal(width, width),
            block + "attn.proj.bias": normal(width, scale=0.1),
            block + "ls1.gamma": 0.5 + normal(width, scale=0.1),
            block + "ls2.gamma": 0.5 + normal(width, scale=0.1),
        }  # fmt: skip
        if masked:
            tensors[block + "attn.qkv.bias_mask"] = mask
        for norm in ("norm1", "norm2"):
            tensors[f"{block}{norm}.weight"] = 1 + normal(width, scale=0.1)
            tensors[f"{block}{norm}.bias"] = normal(width, scale=0.1)
        layers = (
            (("w1", 2, 1), ("w2", 2, 1), ("w3", 1, 2)) if gated else (("fc1", 4, 1), ("fc2", 1, 4))
        )
        for name, out, into in layers:
            tensors[f"{block}mlp.{name}.weight"] = normal(out * width, into * width)
            tensors[f"{block}mlp.{name}.bias"] = normal(out * width, scale=0.1)
    return tensors


def chunked(tensors, size):
    """Names as distributed training stores them: blocks.CHUNK.BLOCK, block numbers kept."""
    out = {}
    for name, tensor in tensors.items():
        renamed = name
        if name.startswith("blocks."):
            _, number, rest = name.split(".", maxsplit=2)
            renamed = f"blocks.{int(number) // size}.{number}.{rest}"
        out[renamed] = tensor
    return out


def prefixed(prefix, tensors):
    """Every name with a prefix before it."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def save(path, content):
    """torch.save, returning the path."""
    torch.save(content, path)
    return path


def timm_model(checkpoint, timm_name, heads=HEADS, **more):
    """The timm model with the checkpoint's sizes, not loaded yet."""
    inferred = checkpoint.inferred
    arguments = {
        "patch_size": inferred.patch,
        "embed_dim": inferred.width,
        "depth": inferred.depth,
        "num_heads": heads,
        "mlp_ratio": inferred.mlp_hidden / inferred.width,
        "num_classes": 0,
    }
    if inferred.grid is not None:
        arguments["img_size"] = tuple(side * inferred.patch for side in inferred.grid)
    if inferred.eps is not None:
        arguments["norm_layer"] = lambda width, **kwargs: nn.LayerNorm(
            width, eps=inferred.eps, **kwargs
        )
    return timm.create_model(timm_name, **(arguments | more)).eval()


def pixels(height, width, seed=0):
    """A batch of one normalised image, (1, 3, height, width)."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((1, 3, height, width)).astype(np.float32))


@torch.no_grad()
def attention_of(module, images):
    """softmax(q k^T / sqrt(d)) of every block of a timm ViT, (L, B, H, N, N), written out."""
    inputs = []
    hooks = [
        block.attn.register_forward_hook(
            lambda _module, args, kwargs, _out: inputs.append((args[0], kwargs.get("rope"))),
            with_kwargs=True,
        )
        for block in module.blocks
    ]
    try:
        module.forward_features(images)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(
        [_attention(block.attn, *given) for block, given in zip(module.blocks, inputs, strict=True)]
    )


def _attention(attn, tokens, rope):
    batch, count, _ = tokens.shape
    bias = attn.qkv.bias
    if getattr(attn, "q_bias", None) is not None:
        bias = torch.cat([attn.q_bias, attn.k_bias, attn.v_bias])
    joined = nn.functional.linear(tokens, attn.qkv.weight, bias)
    query, key, _ = joined.reshape(batch, count, 3, attn.num_heads, -1).permute(2, 0, 3, 1, 4)
    if rope is not None:
        first = attn.num_prefix_tokens

        def rotate(x):
            turned = apply_rot_embed_cat(x[:, :, first:], rope, half=attn.rotate_half)
            return torch.cat([x[:, :, :first], turned], dim=2)

        query, key = rotate(query), rotate(key)
    return (query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])).softmax(dim=-1)


def undrawn(make, config):
    """A transformers model without the cost of its initial weights; ``randomise`` sets them."""
    from transformers import PreTrainedModel

    with patch.object(PreTrainedModel, "init_weights"):
        return make(config).eval()


def randomise(model, seed=0):
    """Fixed weights for a transformers model, with peaked attention and biases that matter."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=rng)
            if "lambda" in name:
                value = 0.5 + 0.1 * noise
            elif "bias_table" in name:
                value = 1.5 * noise
            elif parameter.ndim < 2 and not name.endswith(("weight", "bias")):
                value = 0.5 * noise
            elif "norm" in name and name.endswith("weight"):
                value = 1 + 0.1 * noise
            elif name.endswith("bias"):
                value = 0.2 * noise
            elif "embeddings" in name and "patch" not in name:
                value = 0.5 * noise
            else:
                value = noise / math.sqrt(parameter[0].numel())
                if "q_proj" in name or "k_proj" in name or "query" in name or "key" in name:
                    value *= 1.6
            parameter.copy_(value)
    return model.eval()


def edit_config(folder, **changes):
    """Change fields of a folder's config.json; None deletes one."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name, value in changes.items():
        config.pop(name, None)
        if value is not None:
            config[name] = value
    path.write_text(json.dumps(config))
