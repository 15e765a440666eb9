"""Half precision: the blocks' matrix products in bfloat16 or float16, all else in float32.

The tokens of a ViT are a running sum over its blocks that starts with the patch embedding. Rounding
it to the 8 bits of bfloat16 costs more accuracy than rounding in the products of the blocks. So
tokens, norms and embeddings stay float32, at little cost in time; only the weights of the blocks'
linear layers are stored in half precision, and run under torch's autocast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

HALF = (torch.bfloat16, torch.float16)


def cast(module: Any, dtype: torch.dtype) -> None:
    """Put the weights of a ViT's matrix products into a number type; all else becomes float32."""
    module.to(torch.float32)
    if dtype in HALF:
        for part in module.blocks.modules():
            if isinstance(part, nn.Linear):
                part.to(dtype)


def product_type(module: Any) -> torch.dtype:
    """The number type of the matrix products in a ViT's blocks."""
    types = {weight.dtype for weight in module.blocks.parameters()}
    return next((dtype for dtype in HALF if dtype in types), torch.float32)


@contextmanager
def products_in(dtype: torch.dtype, module: Any, device: torch.device) -> Iterator[None]:
    """Run matrix products in ``dtype`` while active, but not those of the patch embedding."""
    if dtype not in HALF:
        yield
        return

    def pause(_module: nn.Module, _inputs: Any) -> None:
        torch.set_autocast_enabled(device_type=device.type, enabled=False)

    def resume(_module: nn.Module, _inputs: Any, _output: Any) -> None:
        torch.set_autocast_enabled(device_type=device.type, enabled=True)

    embed: nn.Module = module.patch_embed
    handles = (embed.register_forward_pre_hook(pause), embed.register_forward_hook(resume))
    try:
        with torch.autocast(device.type, dtype):
            yield
    finally:
        for handle in handles:
            handle.remove()
