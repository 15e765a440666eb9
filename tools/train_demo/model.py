"""The demo model's size, its weights file, and the CLS attention of its last block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from timm.models.vision_transformer import VisionTransformer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NATIVE_SIDE = 96
PATCH = 8
WIDTH = 128
DEPTH = 6
HEADS = 4


def build_vit() -> VisionTransformer:
    """A plain timm ViT of the demo's size, with fresh weights from torch's global generator."""
    return VisionTransformer(
        img_size=NATIVE_SIDE,
        patch_size=PATCH,
        embed_dim=WIDTH,
        depth=DEPTH,
        num_heads=HEADS,
        num_classes=0,
        class_token=True,
        qkv_bias=True,
        dynamic_img_size=True,
    )


def save_weights(model: VisionTransformer, file: Path, source: str) -> None:
    """Write float16 safetensors with what a reader needs to rebuild the model as metadata."""
    tensors = {name: t.detach().half().contiguous() for name, t in model.state_dict().items()}
    metadata = {
        "format": "pt",
        "patch": str(PATCH),
        "width": str(WIDTH),
        "depth": str(DEPTH),
        "heads": str(HEADS),
        "registers": "0",
        "native_size": str(NATIVE_SIDE),
        "source": source,
    }
    save_file(tensors, file, metadata=metadata)


def load_weights(file: Path) -> VisionTransformer:
    """Build the model with the weights of a file, every tensor of it, in float32."""
    model = build_vit()
    model.load_state_dict({name: t.float() for name, t in load_file(file).items()}, strict=True)
    return model.eval()


def averaged(models: Sequence[VisionTransformer]) -> VisionTransformer:
    """The model whose weights are the means of the others' (Wortsman et al. 2022, model soups)."""
    states = [model.state_dict() for model in models]
    model = build_vit()
    model.load_state_dict({n: torch.stack([s[n] for s in states]).mean(dim=0) for n in states[0]})
    return model.eval()


@torch.no_grad()
def class_logits(model: VisionTransformer, images: torch.Tensor) -> torch.Tensor:
    """The attention logits of the CLS token in the last block, for all tokens: (B, H, N).

    images: (B, 3, h, w), normalised.
    """
    attention = model.blocks[-1].attn
    kept: list[torch.Tensor] = []
    handle = attention.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    try:
        model.forward_features(images)
    finally:
        handle.remove()
    tokens = kept[0]  # (B, N, width)
    batch, count, _ = tokens.shape
    q, k, _ = attention.qkv(tokens).view(batch, count, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
    return (q[:, :, :1] @ k.transpose(-2, -1) * attention.scale)[:, :, 0]


def class_attention(logits: torch.Tensor, side: int = NATIVE_SIDE) -> torch.Tensor:
    """The CLS attention of these logits over the patches, not renormalised: (B, H, gh, gw).

    side: height and width of the images in pixels.
    """
    cells = side // PATCH
    return logits.softmax(dim=-1)[..., 1:].unflatten(-1, (cells, cells))
