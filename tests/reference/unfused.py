"""timm's own attention without its fused kernel, and weights that make it peaked."""

from __future__ import annotations

import numpy as np
import torch


def peaked(module):
    """Fixed weights that make the attention peaked, in place."""
    rng = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=rng)
            if "pos_embed" in name or "token" in name:
                parameter.copy_(0.5 * noise)
            elif "bias_table" in name:
                parameter.copy_(1.5 * noise)
            elif "gamma" in name:
                parameter.copy_(0.5 + 0.1 * noise)
            elif "freqs" not in name and parameter.ndim >= 2:
                gain = 1.2 if any(part in name for part in ("qkv", "q_proj", "k_proj")) else 1.0
                parameter.copy_(gain * noise / parameter[0].numel() ** 0.5)
            elif name.endswith("bias"):
                parameter.copy_(0.1 * noise)
    return module.eval()


def unfused(module, forward) -> np.ndarray:
    """Every matrix (L, H, N, N), out of the dropout behind timm's own softmax.

    ``forward``: runs the module on one image.
    """
    holders = [getattr(block, "attn", block) for block in module.blocks]
    found = []
    hooks = [
        holder.attn_drop.register_forward_hook(lambda _module, _inputs, out: found.append(out[0]))
        for holder in holders
    ]
    for holder in holders:
        holder.fused_attn = False
    try:
        with torch.inference_mode():
            forward()
    finally:
        for hook in hooks:
            hook.remove()
        for holder in holders:
            holder.fused_attn = True
    return torch.stack(found).numpy()
