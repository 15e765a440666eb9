"""The classifier that comes with supervised weights, kept beside the backbone.

Logits are a linear map of pooled tokens: CLS, CLS and distillation token (DeiT: the mean of two
classifiers), the mean patch, or CLS beside the mean patch (transformers' Dinov2 classifiers).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.domain import ModelInfo
from attnviz.errors import CheckpointError
from attnviz.models.weights.checkpoint import Checkpoint
from attnviz.models.weights.inferred import Source

_CLASSIFIERS = ("head", "classifier", "cls_classifier")
_DISTILLED = ("head_dist", "distillation_classifier")
_BESIDE = (Source.HF_DINOV2, Source.HF_DINOV2_REGISTERS)
"""Layouts whose classifiers read CLS beside the mean patch."""


@dataclass(frozen=True)
class Part:
    """Some tokens, of which the mean is read, and the weight (C, width) that reads them."""

    tokens: slice
    weight: Tensor


class ClassHead:
    """A linear classifier of C classes on pooled tokens.

    norm: what the pooled tokens pass through first (timm's ``fc_norm``), often nothing.
    """

    def __init__(self, parts: tuple[Part, ...], bias: Tensor, norm: nn.Module) -> None:
        self._parts = parts
        self._bias = bias
        self._norm = norm

    @property
    def classes(self) -> int:
        """C."""
        return int(self._bias.shape[0])

    def logits(self, tokens: Tensor) -> Tensor:
        """Tokens (B, N, width) to logits (B, C), in float32."""
        logits = self._bias
        for part in self._parts:
            pooled = self._norm(tokens[:, part.tokens].float().mean(dim=1))  # B, width
            logits = logits + pooled @ part.weight.T
        return logits

    def behind(self, prefix: int, count: int) -> ClassHead | None:
        """The same classifier where ``count`` more tokens follow the first ``prefix``.

        What read the patches reads them where they are then; the added tokens are not read. None
        for one that reads all tokens.
        """
        if prefix and any(part.tokens == slice(0, None) for part in self._parts):
            return None
        parts = [
            replace(part, tokens=slice(prefix + count, None))
            if part.tokens == slice(prefix, None)
            else part
            for part in self._parts
        ]
        return ClassHead(tuple(parts), self._bias, self._norm)

    def reads(self, tokens: int) -> Tensor:
        """With what weight each of N tokens is read, every part counting the same: (N,), sum 1."""
        total = torch.zeros(tokens)
        for part in self._parts:
            count = len(range(tokens)[part.tokens])
            total[part.tokens] += 1 / (count * len(self._parts))
        return total

    def direction(self, index: int) -> Tensor | None:
        """The weight (width,) of a class where CLS alone is read, and as it is; else None."""
        first = self._parts[0]
        alone = len(self._parts) == 1 and first.tokens == slice(0, 1)
        return first.weight[index] if alone and isinstance(self._norm, nn.Identity) else None


def class_head(
    module: Any, checkpoint: Checkpoint, info: ModelInfo, device: torch.device
) -> ClassHead | None:
    """The classifier of a checkpoint, in float32; None where it does not read the module's tokens.

    Raises:
        CheckpointError: One that does not fit the backbone.
    """
    weight, bias = _linear(checkpoint.unused, _CLASSIFIERS)
    pooling = getattr(module, "global_pool", "token")
    if (
        weight is None
        or checkpoint.source in _BEFORE_NORM
        or getattr(module, "attn_pool", None) is not None
        or pooling not in _POOLINGS
    ):
        return None
    patches = slice(0 if getattr(module, "pool_include_prefix", False) else info.prefix, None)
    first = slice(0, 1) if pooling == "token" else patches
    parts = [Part(first, weight)]
    distilled, distilled_bias = _linear(checkpoint.unused, _DISTILLED)
    if distilled is not None and info.prefix - info.registers > int(info.has_cls):
        parts = [Part(slice(0, 1), weight / 2), Part(slice(1, 2), distilled / 2)]
        bias = _sum(bias, distilled_bias, weight) / 2
    elif checkpoint.source in _BESIDE and weight.shape[1] == 2 * info.width:
        of_cls, of_patches = weight[:, : info.width], weight[:, info.width :]
        parts = [Part(slice(0, 1), of_cls), Part(patches, of_patches)]
    for part in parts:
        if part.weight.shape != (weight.shape[0], info.width):
            raise CheckpointError(
                f"{checkpoint.path}: its classifier reads {part.weight.shape[1]} numbers, the "
                f"backbone has {info.width}"
            )
    norm = _norm(module, checkpoint)
    if norm is None:
        return None
    if bias is None:
        bias = torch.zeros(weight.shape[0])
    return ClassHead(
        tuple(Part(part.tokens, part.weight.to(device)) for part in parts),
        bias.to(device),
        norm.to(device),
    )


_POOLINGS = ("token", "avg")
_BEFORE_NORM = (Source.HF_CLIP, Source.HF_SIGLIP)
"""Layouts whose classifiers read tokens before the final norm, or pooled by a learned query."""


def _linear(
    heads: Mapping[str, Tensor], names: tuple[str, ...]
) -> tuple[Tensor | None, Tensor | None]:
    """Weight and bias of the first of these names that is a matrix, in float32."""
    for name in names:
        weight, bias = heads.get(f"{name}.weight"), heads.get(f"{name}.bias")
        if weight is not None and weight.ndim == 2 and weight.is_floating_point():
            return weight.float(), None if bias is None else bias.float()
    return None, None


def _sum(left: Tensor | None, right: Tensor | None, weight: Tensor) -> Tensor:
    zero = torch.zeros(weight.shape[0])
    return (zero if left is None else left) + (zero if right is None else right)


def _norm(module: Any, checkpoint: Checkpoint) -> nn.Module | None:
    """The norm between pooled tokens and classifier with the file's weights; None: not in it."""
    built = getattr(module, "fc_norm", None)
    if built is None or isinstance(built, nn.Identity):
        # Without a norm before the pooling either, the file has lost the one behind it.
        return None if isinstance(module.norm, nn.Identity) else nn.Identity()
    names = [f"fc_norm.{name}" for name in built.state_dict()]
    if not all(name in checkpoint.tensors for name in names):
        return None
    own = {name.removeprefix("fc_norm."): checkpoint.tensors[name].float() for name in names}
    norm: nn.Module = copy.deepcopy(built).float()
    norm.load_state_dict(own)
    return norm.requires_grad_(requires_grad=False)
