"""What each token writes into CLS, projected on a target: relevance without a gradient.

Gandelsman, Efros & Steinhardt 2024 ("Interpreting CLIP's Image Representation via Text-Based
Decomposition"): blocks add to CLS, so CLS before the last norm is a sum. What attention adds is
itself a sum over tokens j, layers and heads: c_j = sum_l,h A[l, h, 0, j] v_j W_O. With its mean and
deviation fixed the last norm is linear, as is the target, so every c_j has a share in the target.
The rest comes from the MLPs, the biases and the embedding of CLS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.attention.arrays import head_index
from attnviz.attention.capture import (
    OUTPUT_TOLERANCE,
    AttentionCall,
    AttentionModel,
    intercepted,
)
from attnviz.errors import UnsupportedModelError


@dataclass(eq=False)
class _ClsState:
    """CLS of each image during a pass: (B, width) float32, and what is added to it.

    ``before``: where it enters a block; ``added``: by that block's attention, within ``tolerance``;
    ``final``: before the last norm.
    """

    before: Tensor = field(init=False)
    added: Tensor = field(init=False)
    tolerance: float = 0.0
    final: Tensor = field(init=False)


def cls_contributions(
    model: AttentionModel, batch: Tensor, heads: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """What each token writes into CLS through the chosen heads of all layers: (B, N, width).

    Also returns CLS before the last norm (B, width) and the tokens after it (B, N, width). All are
    float32.

    Raises:
        UnsupportedModelError: Blocks that do not add their attention's projection to the tokens.
        AttentionError: The attention breaks an invariant.
    """
    written: list[Tensor] = []
    cls = _ClsState()
    chosen = head_index(heads, batch.device)

    def handle(call: AttentionCall) -> None:
        block: Any = model.blocks[call.layer]
        projection = output_projection(block)
        if projection is None:
            raise _unsupported(model.info.name)
        weight, bias = projection
        attention = call.rows(call.first_token)[:, :, 0, :, None]  # B, H, N, 1
        parts = attention * call.value.float()  # B, H, N, d
        _, total, _, width = parts.shape
        cls.tolerance = OUTPUT_TOLERANCE[call.value.dtype]
        cls.added = parts.sum(dim=2).flatten(1) @ weight.T + bias  # B, width
        of_heads = weight.view(-1, total, width)[:, chosen]  # width, h, d
        added = torch.einsum("bhnd,whd->bnw", parts[:, chosen], of_heads)
        written.append(added if not written else written.pop().add_(added))

    with (
        torch.inference_mode(),
        _hooked(model, cls),
        intercepted(model, batch, model.info.depth, handle),
    ):
        tokens = model.run(batch)
    return written[0], cls.final, tokens.float()


def along(norm: nn.Module, direction: Tensor, cls: Tensor, written: Tensor) -> Tensor:
    """The share of each token in a target that is linear in CLS after the norm: (B, N).

    direction, cls (B, width): of the target after the norm; CLS before it. written: (B, N, width).
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
            f"{name} does not end in a layer norm, so contributions to its CLS are not linear",
            "use --method chefer",
        )


def output_projection(block: Any) -> tuple[Tensor, Tensor] | None:
    """Weight (width, H d) and bias (width,) that project a block's heads, layer scale included.

    None for blocks that do not project their attention once and have a second norm.
    """
    linear = getattr(getattr(block, "attn", None), "proj", None)
    if not isinstance(linear, nn.Linear) or not hasattr(block, "norm2"):
        return None
    scale = getattr(getattr(block, "ls1", None), "gamma", getattr(block, "gamma_1", None))
    gamma = torch.ones_like(linear.weight[:, 0]) if scale is None else scale
    bias = torch.zeros_like(gamma) if linear.bias is None else linear.bias
    return (linear.weight * gamma[:, None]).float(), (bias * gamma).float()


@contextmanager
def _hooked(model: AttentionModel, cls: _ClsState) -> Iterator[None]:
    """Keep ``cls`` up to date during a pass; check that attention is added to it."""

    def enter(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        cls.before = inputs[0][:, 0].float()

    def check(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        after = inputs[0][:, 0].float()
        size = max(1.0, after.abs().max().item())
        deviation = (after - cls.before - cls.added).abs().max().item() / size
        if not deviation < cls.tolerance:
            raise _unsupported(model.info.name)

    def finish(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        cls.final = inputs[0][:, 0].float()

    handles = [model.norm.register_forward_pre_hook(finish)]
    try:
        for block in model.blocks:
            handles.append(block.register_forward_pre_hook(enter))
            second = getattr(block, "norm2", None)
            if isinstance(second, nn.Module):
                handles.append(second.register_forward_pre_hook(check))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _unsupported(name: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{name}: its blocks do not simply add their attention to the tokens, so contributions of "
        "single tokens are not defined",
        "use --method chefer",
    )
