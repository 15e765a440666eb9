"""Folders of the transformers library: their tensors under timm's names.

ViT and its relatives (DeiT, MAE, MSN, I-JEPA), Dinov2, Dinov2WithRegisters, DINOv3ViT, BEiT, and
the vision towers of CLIP and SigLIP, in the spelling that is saved to disk and the one that newer
versions use in memory. Query, key and value are joined in that order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from attnviz.errors import CheckpointError
from attnviz.models.weights.grid import BIAS_TABLE
from attnviz.models.weights.inferred import Source
from attnviz.models.weights.layouts import (
    POOL,
    join_class_position,
    separate_biases,
    split_unused,
    with_batch_axis,
)

_BLOCK = re.compile(r"^(?:encoder\.|model\.)?layers?\.(\d+)\.(.+)$")

_TOKENS = {
    "embeddings.cls_token": "cls_token",
    "embeddings.class_embedding": "cls_token",
    "embeddings.distillation_token": "dist_token",
    "embeddings.register_tokens": "reg_token",
    "embeddings.position_embeddings": "pos_embed",
    "embeddings.position_embedding.weight": "pos_embed",
}
_OUTSIDE = {
    "embeddings.patch_embeddings.projection": "patch_embed.proj",
    "embeddings.patch_embeddings": "patch_embed.proj",
    "embeddings.patch_embedding": "patch_embed.proj",
    "pre_layrnorm": "norm_pre",
    "layernorm": "norm",
    "norm": "norm",
    "post_layernorm": "norm",
    "encoder.relative_position_bias": "rel_pos_bias",
    "shared_position_bias": "rel_pos_bias",
}
_INSIDE = {
    "attention.attention.query": "q",
    "attention.attention.key": "k",
    "attention.attention.value": "v",
    "attention.q_proj": "q",
    "attention.k_proj": "k",
    "attention.v_proj": "v",
    "self_attn.q_proj": "q",
    "self_attn.k_proj": "k",
    "self_attn.v_proj": "v",
    "attention.output.dense": "attn.proj",
    "attention.o_proj": "attn.proj",
    "self_attn.out_proj": "attn.proj",
    "attention.attention.relative_position_bias": "attn",
    "relative_position_bias": "attn",
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
    "norm1": "norm1",
    "norm2": "norm2",
    "layer_norm1": "norm1",
    "layer_norm2": "norm2",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
    "mlp.weights_in": "mlp.fc1",
    "mlp.weights_out": "mlp.fc2",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "mlp.fc2",
}
_SCALES = {
    "layer_scale1.lambda1": "ls1.gamma",
    "layer_scale2.lambda1": "ls2.gamma",
    "lambda_1": "ls1.gamma",
    "lambda_2": "ls2.gamma",
}
_POOL = {
    "head.probe": "latent",
    "head.attention.out_proj.weight": "proj.weight",
    "head.attention.out_proj.bias": "proj.bias",
    **{f"head.layernorm.{kind}": f"norm.{kind}" for kind in ("weight", "bias")},
    **{f"head.mlp.fc{i}.{kind}": f"mlp.fc{i}.{kind}" for i in "12" for kind in ("weight", "bias")},
}
"""SigLIP's pooling head, a learned query that attends to all patches."""

_SEPARATE = (Source.HF_DINOV3, Source.HF_BEIT)
"""Layouts whose blocks in timm keep the biases of query, key and value apart from the weight."""


def is_layout(tensors: Mapping[str, Tensor]) -> bool:
    """Whether names are those of transformers."""
    return any(name.startswith("embeddings.") for name in tensors)


def convert(
    stored: Mapping[str, Tensor], source: Source, path: Path
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Tensors in timm's naming, and those that are unused under their own names.

    Raises:
        CheckpointError: A name that no supported model has, or a query without its key.
    """
    out, rest = _split_pooling(stored, source)
    kept, unused = split_unused(rest)
    blocks: dict[str, dict[str, Tensor]] = {}
    for name, tensor in kept.items():
        match = _BLOCK.match(name)
        if match:
            blocks.setdefault(f"blocks.{match.group(1)}.", {})[match.group(2)] = tensor
        elif name == "embeddings.position_ids":
            unused[name] = tensor
        elif not name.startswith("rope_embeddings."):
            renamed, moved = _outside(name, tensor, source, path)
            out[renamed] = moved
    biases: dict[str, Tensor] = {}
    for prefix, block in blocks.items():
        out |= _convert_block(block, prefix, source, path, biases)
    out |= separate_biases(biases)
    if source is Source.HF_DINOV2_REGISTERS:
        out = join_class_position(out)
    return out, unused


def _outside(name: str, tensor: Tensor, source: Source, path: Path) -> tuple[str, Tensor]:
    """A tensor outside of the blocks under timm's name."""
    stem, _, kind = name.rpartition(".")
    if name in _TOKENS:
        return _TOKENS[name], with_batch_axis(tensor)
    if stem in _OUTSIDE:
        return f"{_OUTSIDE[stem]}.{kind}", tensor
    raise CheckpointError(f"{path}: {name} is not a tensor of a {source.value} model")


def _split_pooling(
    stored: Mapping[str, Tensor], source: Source
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What pools the tokens (SigLIP's head, BEiT's norm) under timm's names, and the rest."""
    out = _pool(stored)
    rest = {name: tensor for name, tensor in stored.items() if not out or name[:5] != "head."}
    if source is Source.HF_BEIT:
        for kind in ("weight", "bias"):
            if (tensor := rest.pop(f"pooler.layernorm.{kind}", None)) is not None:
                out[f"fc_norm.{kind}"] = tensor
    return out, rest


def _pool(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """SigLIP's pooling head as timm's; empty where there is none."""
    if "head.probe" not in stored:
        return {}
    out = {POOL + ours: stored[name] for name, ours in _POOL.items() if name in stored}
    for kind in ("weight", "bias"):
        joined = stored.get(f"head.attention.in_proj_{kind}")
        if joined is not None:
            query, *key_and_value = joined.chunk(3)
            out[f"{POOL}q.{kind}"] = query
            out[f"{POOL}kv.{kind}"] = torch.cat(key_and_value)
    return out


def _convert_block(
    block: Mapping[str, Tensor], prefix: str, source: Source, path: Path, biases: dict[str, Tensor]
) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    parts: dict[str, Tensor] = {}
    for name, tensor in block.items():
        stem, _, kind = name.rpartition(".")
        if name in _SCALES:
            scale = _SCALES[name]
            out[f"{prefix}gamma_{scale[2]}" if source in _SEPARATE else prefix + scale] = tensor
            continue
        ours = _INSIDE.get(stem)
        if ours is None or (ours == "attn") != (kind == BIAS_TABLE):
            raise CheckpointError(
                f"{path}: {prefix}{name} is not a tensor of a {source.value} model"
            )
        if ours in ("q", "k", "v", "gate", "up"):
            parts[f"{ours}.{kind}"] = tensor
        else:
            out[f"{prefix}{ours}.{kind}"] = tensor
    _join_attention(parts, prefix, out, biases, path, separate=source in _SEPARATE)
    _join_mlp(parts, prefix, out, path, separate=source is Source.HF_DINOV3)
    return out


def _join_attention(
    parts: Mapping[str, Tensor],
    prefix: str,
    out: dict[str, Tensor],
    biases: dict[str, Tensor],
    path: Path,
    *,
    separate: bool,
) -> None:
    missing = [letter for letter in "qkv" if f"{letter}.weight" not in parts]
    if missing:
        raise CheckpointError(f"{path}: {prefix}attention has no {missing[0]} weight")
    out[f"{prefix}attn.qkv.weight"] = torch.cat([parts[f"{letter}.weight"] for letter in "qkv"])
    if not any(f"{letter}.bias" in parts for letter in "qkv"):
        return
    # DINOv3 and BEiT have a bias of query and value only: the missing one is zero.
    zero = torch.zeros(parts["q.weight"].shape[0])
    joined = torch.cat([parts.get(f"{letter}.bias", zero).float() for letter in "qkv"])
    if separate:
        biases[f"{prefix}attn."] = joined
    else:
        out[f"{prefix}attn.qkv.bias"] = joined


def _join_mlp(
    parts: Mapping[str, Tensor], prefix: str, out: dict[str, Tensor], path: Path, *, separate: bool
) -> None:
    for kind in ("weight", "bias"):
        gate, up = parts.get(f"gate.{kind}"), parts.get(f"up.{kind}")
        if gate is not None and up is None:
            raise CheckpointError(f"{path}: {prefix}mlp has a gate and no up projection")
        if up is None:
            continue
        if gate is None:
            out[f"{prefix}mlp.fc1.{kind}"] = up
        elif separate:
            out |= {f"{prefix}mlp.fc1_g.{kind}": gate, f"{prefix}mlp.fc1_x.{kind}": up}
        else:
            out[f"{prefix}mlp.fc1.{kind}"] = torch.cat([gate, up])
