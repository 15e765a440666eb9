"""Original layouts in timm's naming: DINO, DINOv2, DINOv3, torchvision, open_clip, timm itself.

Values are not changed and nothing is resized. Two things are joined, because timm stores them
joined: the CLS token of a DINOv2 model with registers and its position; and, in DINOv3, the bias
of query, key and value with the mask that Meta's code multiplies it with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from attnviz.errors import CheckpointError
from attnviz.models.weights.inferred import Source

# Distributed training stores blocks in chunks: the second number is the block's own.
_CHUNKED = re.compile(r"^blocks\.\d+\.(\d+)\.")

HEADS = re.compile(
    r"^(?:head|head_dist|heads|dino_head|ibot_head|projectors|fc_norm|local_cls_norm|pooler|"
    r"classifier|cls_classifier|distillation_classifier|pre_logits|lm_head|cls_pt_layers|"
    r"decoder(?:_\w+)?)\."
)
"""Parts behind the backbone, which a figure of its attention does not need."""

POOL = "attn_pool."
"""Pooling by a latent query, behind the backbone too; kept, since its attention is a map."""

UNUSED = re.compile(
    r"(?:^|\.)(?:mask_token|masked_embed|decoder_pos_embed|relative_position_index)$"
)
"""Tensors that only training uses, or that follow from the sizes."""


# Parts of other models with DINO's shapes. A classifier on the backbone itself is not DINO's, whose
# head sits beside it; nor is a mask token, which is MAE's or iBOT's.
_NOT_DINO = {
    *("head.weight", "mask_token", "masked_embed", "dist_token", "reg_token", "fc_norm.weight"),
    *("norm_pre.weight", "blocks.0.gamma_1", "blocks.0.attn.q_norm.weight", "blocks.0.attn.q_bias"),
}


def unchunk(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``blocks.CHUNK.BLOCK.name`` as ``blocks.BLOCK.name``."""
    return {_CHUNKED.sub(r"blocks.\1.", name): tensor for name, tensor in tensors.items()}


def split_unused(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors of the backbone, and those of heads and mask tokens, which are unused.

    A norm on pooled tokens is kept: where it is, the backbone has none at its end.
    """
    kept: dict[str, Tensor] = {}
    unused: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        head = HEADS.match(name) and not name.startswith("fc_norm.")
        (unused if head or UNUSED.search(name) else kept)[name] = tensor
    return kept, unused


def original_source(tensors: Mapping[str, Tensor]) -> Source:
    """Which original layout the names follow."""
    if "conv_proj.weight" in tensors:
        return Source.TORCHVISION
    if "ln_pre.weight" in tensors:
        return Source.OPEN_CLIP
    if "storage_tokens" in tensors or "rope_embed.periods" in tensors:
        return Source.DINOV3
    scaled = any(name.endswith("ls1.gamma") for name in tensors)
    if "register_tokens" in tensors or ("mask_token" in tensors and scaled):
        return Source.DINOV2
    plain = {"cls_token", "pos_embed"} <= tensors.keys() and not scaled
    if plain and not _NOT_DINO.intersection(tensors):
        return Source.DINO
    return Source.TIMM


def from_dinov2(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """DINOv2 to timm: registers, packed SwiGLU; with registers, the class position joins CLS."""
    out = {}
    for name, tensor in tensors.items():
        renamed = name.replace(".mlp.w12.", ".mlp.fc1.").replace(".mlp.w3.", ".mlp.fc2.")
        out[renamed] = tensor
    if "register_tokens" in out:
        out["reg_token"] = out.pop("register_tokens")
        out = join_class_position(out)
    return out


def join_class_position(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The CLS token plus its position, and positions of patches only (timm's register models)."""
    out = dict(tensors)
    if "cls_token" in out and "pos_embed" in out:
        positions = out["pos_embed"]
        out["cls_token"] = out["cls_token"].float() + positions[:, :1].float()
        out["pos_embed"] = positions[:, 1:]
    return out


def from_dinov3(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """DINOv3 to timm: storage tokens, layer scale, SwiGLU, and biases apart from the weights."""
    out: dict[str, Tensor] = {}
    masks = {name: tensor for name, tensor in tensors.items() if name.endswith(".bias_mask")}
    biases = {name: tensor for name, tensor in tensors.items() if name.endswith(".qkv.bias")}
    for name, tensor in tensors.items():
        if name in masks or name in biases:
            continue
        out[_dinov3_name(name)] = tensor
    joined = {}
    for name, bias in biases.items():
        mask = masks.get(name + "_mask")
        masked = bias.float() if mask is None else bias.float() * mask.float()
        if not torch.isfinite(masked).all():
            raise CheckpointError(f"{path}: {name} times its mask is not finite")
        joined[name.removesuffix("qkv.bias")] = masked
    return out | separate_biases(joined)


def _dinov3_name(name: str) -> str:
    for theirs, ours in (
        ("storage_tokens", "reg_token"),
        ("rope_embed.periods", "rope.periods"),
        (".ls1.gamma", ".gamma_1"),
        (".ls2.gamma", ".gamma_2"),
        (".mlp.w1.", ".mlp.fc1_g."),
        (".mlp.w2.", ".mlp.fc1_x."),
        (".mlp.w3.", ".mlp.fc2."),
    ):
        name = name.replace(theirs, ours)
    return name


def separate_biases(joined: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Joined (3 * width,) biases by ``blocks.I.attn.`` as the q, k and v biases of EVA blocks."""
    out: dict[str, Tensor] = {}
    for prefix, bias in joined.items():
        for letter, part in zip("qkv", bias.chunk(3), strict=True):
            out[f"{prefix}{letter}_bias"] = part
    return out


_TORCHVISION = (
    (r"^class_token$", "cls_token"),
    (r"^conv_proj\.", "patch_embed.proj."),
    (r"^encoder\.pos_embedding$", "pos_embed"),
    (r"^encoder\.ln\.", "norm."),
    (r"^heads\.head\.", "head."),
    (r"^encoder\.layers\.encoder_layer_(\d+)\.", r"blocks.\1."),
    (r"\.ln_([12])\.", r".norm\1."),
    (r"\.self_attention\.in_proj_", ".attn.qkv."),
    (r"\.self_attention\.out_proj\.", ".attn.proj."),
    (r"\.mlp\.(?:linear_1|0)\.", ".mlp.fc1."),
    (r"\.mlp\.(?:linear_2|3)\.", ".mlp.fc2."),
)
_OPEN_CLIP = (
    (r"^class_embedding$", "cls_token"),
    (r"^conv1\.", "patch_embed.proj."),
    (r"^positional_embedding$", "pos_embed"),
    (r"^ln_pre\.", "norm_pre."),
    (r"^ln_post\.", "norm."),
    (r"^transformer\.resblocks\.(\d+)\.", r"blocks.\1."),
    (r"\.ln_([12])\.", r".norm\1."),
    (r"\.attn\.in_proj_", ".attn.qkv."),
    (r"\.attn\.out_proj\.", ".attn.proj."),
    (r"\.mlp\.c_fc\.", ".mlp.fc1."),
    (r"\.mlp\.c_proj\.", ".mlp.fc2."),
    (r"\.ls_([12])\.gamma$", r".ls\1.gamma"),
    (r"^proj$", "head.proj"),
)
_RENAMED = {Source.TORCHVISION: _TORCHVISION, Source.OPEN_CLIP: _OPEN_CLIP}


def renamed(tensors: Mapping[str, Tensor], source: Source) -> dict[str, Tensor]:
    """Torchvision's or open_clip's names as timm's; tokens and positions with a batch axis."""
    out = {}
    for name, tensor in tensors.items():
        for theirs, ours in _RENAMED[source]:
            name = re.sub(theirs, ours, name)  # noqa: PLW2901
        out[name] = tensor
    for name in ("cls_token", "pos_embed"):
        if name in out:
            out[name] = with_batch_axis(out[name])
    return out


def with_batch_axis(tensor: Tensor) -> Tensor:
    """A token (width,) or tokens (N, width) as (1, N, width)."""
    return tensor.reshape(1, -1, tensor.shape[-1])
