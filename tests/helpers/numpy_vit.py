"""A ViT's forward pass in numpy, written from the papers: nothing of attnviz, timm or torch runs.

With test-time registers (Jiang et al. 2025), which may stand before or behind all other tokens.
"""

from __future__ import annotations

import math

import numpy as np


def state_of(module):
    """The weights of a module as float64 arrays, by timm's names."""
    return {name: tensor.double().numpy() for name, tensor in module.state_dict().items()}


def embeddings(weights, image, patch, stride=None):
    """Patch embeddings (n, D) of an image (3, h, w): every patch flattened, times a matrix."""
    stride = stride or patch
    kernel = weights["patch_embed.proj.weight"]
    _, height, width = image.shape
    flat = [
        image[:, top : top + patch, left : left + patch].ravel()
        for top in range(0, height - patch + 1, stride)
        for left in range(0, width - patch + 1, stride)
    ]
    return np.array(flat) @ kernel.reshape(len(kernel), -1).T + weights["patch_embed.proj.bias"]


def forward(weights, image, *, patch, heads, neurons=(), registers=0, where="last", gated=False,
            eps=1e-6):  # fmt: skip
    """Norms (L, N) of the tokens that each block gives and attention (L, H, N, N), in float64.

    The order of the tokens is CLS, patches, registers, wherever the registers stand in the pass.
    neurons: (layer, index) whose activation moves from the patches to the registers.
    """
    tokens = embeddings(weights, image, patch)
    prefix = weights["cls_token"].shape[1] if "cls_token" in weights else 0
    if prefix:
        tokens = np.concatenate([weights["cls_token"][0], tokens])
    tokens = tokens + weights["pos_embed"][0]
    count, width = tokens.shape
    zeros = np.zeros((registers, width))
    parts = (zeros, tokens) if where == "first" else (tokens, zeros)
    tokens = np.concatenate(parts)
    own = np.arange(count) + (registers if where == "first" else 0)
    added = np.arange(registers) + (0 if where == "first" else count)
    patches = own[prefix:]
    order = np.concatenate([own, added])
    norms, attention = [], []
    for layer in range(sum(name.endswith("norm1.weight") for name in weights)):
        block = {
            name.removeprefix(f"blocks.{layer}."): value
            for name, value in weights.items()
            if name.startswith(f"blocks.{layer}.")
        }
        normed = _norm(tokens, block, "norm1", eps)
        query, key, value = np.split(_linear(normed, block, "attn.qkv"), 3, axis=1)
        rows = []
        mixed = np.empty_like(normed)
        for head in range(heads):
            part = slice(head * width // heads, (head + 1) * width // heads)
            logits = query[:, part] @ key[:, part].T / math.sqrt(width // heads)
            weight = np.exp(logits - logits.max(axis=1, keepdims=True))
            weight /= weight.sum(axis=1, keepdims=True)
            mixed[:, part] = weight @ value[:, part]
            rows.append(weight[np.ix_(order, order)])
        tokens = tokens + _linear(mixed, block, "attn.proj") * block.get("ls1.gamma", 1)
        hidden = _linear(_norm(tokens, block, "norm2", eps), block, "mlp.fc1")
        if gated:
            first, second = np.split(hidden, 2, axis=1)
            hidden = first / (1 + np.exp(-first)) * second
        else:
            hidden = hidden * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2))) / 2
        for place, index in neurons:
            if place == layer and registers:
                column = hidden[patches, index]
                hidden[added, index] = column[np.abs(column).argmax()]
                hidden[patches, index] = 0
        tokens = tokens + _linear(hidden, block, "mlp.fc2") * block.get("ls2.gamma", 1)
        norms.append(np.linalg.norm(tokens, axis=1)[order])
        attention.append(rows)
    return np.array(norms), np.array(attention)


def _linear(values, block, name):
    return values @ block[f"{name}.weight"].T + block.get(f"{name}.bias", 0)


def _norm(values, block, name, eps):
    centred = values - values.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + eps)
    return scaled * block[f"{name}.weight"] + block[f"{name}.bias"]
