"""What each token writes into CLS, measured along a target: relevance without a gradient.

Gandelsman, Efros & Steinhardt 2024 ("Interpreting CLIP's Image Representation via Text-Based
Decomposition"): blocks add to CLS, so CLS before the last norm is a sum. What attention adds is
itself a sum over tokens j, layers and heads: c_j = sum_l,h A[l, h, 0, j] v_j W_O. The last norm,
its mean and deviation held, and the target are linear, so every c_j has a share in the target.
The rest is what the MLPs, the biases and the embedding of CLS add.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.attention.capture import (
    OUTPUT_TOLERANCE,
    AttentionCall,
    AttentionModel,
    intercepted,
)
from attnviz.errors import UnsupportedModelError


def cls_contributions(
    model: AttentionModel, batch: Tensor, heads: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """What each token writes into CLS through the chosen heads of all layers: (B, N, width).

    With it CLS before the last norm and the tokens after it, (B, width) and (B, N, width). All in
    float32.

    Raises:
        UnsupportedModelError: Blocks that do not add their attention's projection to the tokens.
        AttentionError: The attention breaks an invariant.
    """
    found: list[Tensor] = []
    seen: dict[str, Tensor] = {}
    chosen = list(heads)

    def take(call: AttentionCall) -> None:
        block: Any = model.blocks[call.layer]
        weight, bias = _projection(block, model.info.name)
        first = torch.zeros(1, dtype=torch.long, device=call.query.device)
        attention = call.rows(first)[:, :, 0, :, None]  # B, H, N, 1
        parts = attention * call.value.float()  # B, H, N, d
        _, total, _, width = parts.shape
        written = parts.sum(dim=2).flatten(1) @ weight.T + bias  # B, width
        seen["attention"] = written
        of_heads = weight.view(-1, total, width)[:, chosen]  # width, h, d
        added = torch.einsum("bhnd,whd->bnw", parts[:, chosen], of_heads)
        found.append(added if not found else found.pop().add_(added))

    with (
        torch.inference_mode(),
        _watched(model, seen),
        intercepted(model, batch, model.info.depth, take),
    ):
        tokens = model.run(batch)
    return found[0], seen["last"], tokens.float()


def along(norm: nn.Module, direction: Tensor, cls: Tensor, written: Tensor) -> Tensor:
    """The share of every token's writing in a target that is linear in CLS after the norm: (B, N).

    direction, cls: (B, width). written: (B, N, width).
    """
    layer_norm: Any = norm
    scaled = direction * layer_norm.weight.float()
    deviation = (cls.var(dim=-1, unbiased=False, keepdim=True) + layer_norm.eps).sqrt()
    centred = (scaled - scaled.mean(dim=-1, keepdim=True)) / deviation  # B, width
    shares: Tensor = (written @ centred[:, :, None])[..., 0]
    return shares


def check_norm(norm: nn.Module, name: str) -> None:
    """Raise UnsupportedModelError unless the last norm is a layer norm."""
    if not isinstance(norm, nn.LayerNorm) or norm.weight is None:
        raise UnsupportedModelError(
            f"{name} ends in no layer norm, so contributions to its CLS cannot be told apart",
            "use --method chefer",
        )


def _projection(block: Any, name: str) -> tuple[Tensor, Tensor]:
    """Weight (width, H d) and bias (width,) by which a block writes its heads, scale included."""
    linear = getattr(getattr(block, "attn", None), "proj", None)
    if not isinstance(linear, nn.Linear) or not hasattr(block, "norm2"):
        raise _unknown(name)
    scale = getattr(getattr(block, "ls1", None), "gamma", getattr(block, "gamma_1", None))
    gamma = torch.ones_like(linear.weight[:, 0]) if scale is None else scale
    bias = torch.zeros_like(gamma) if linear.bias is None else linear.bias
    return (linear.weight * gamma[:, None]).float(), (bias * gamma).float()


@contextmanager
def _watched(model: AttentionModel, seen: dict[str, Tensor]) -> Iterator[None]:
    """Note CLS where it enters a block, its MLP and the last norm; compare what attention added."""

    def enter(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen["block"] = inputs[0][:, 0].float()

    def middle(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        added = inputs[0][:, 0].float() - seen["block"]
        size = max(1.0, inputs[0][:, 0].abs().max().item())
        deviation = (added - seen["attention"]).abs().max().item() / size
        if not deviation < OUTPUT_TOLERANCE[inputs[0].dtype]:
            raise _unknown(model.info.name)

    def leave(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen["last"] = inputs[0][:, 0].float()

    handles = [model.norm.register_forward_pre_hook(leave)]
    try:
        for block in model.blocks:
            handles.append(block.register_forward_pre_hook(enter))
            second = getattr(block, "norm2", None)
            if isinstance(second, nn.Module):
                handles.append(second.register_forward_pre_hook(middle))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _unknown(name: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{name}: its blocks do not simply add their attention to the tokens, so what each token "
        "contributes cannot be told",
        "use --method chefer",
    )
