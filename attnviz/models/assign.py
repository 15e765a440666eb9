"""Putting a checkpoint's tensors into a module: all of the backbone, or none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attnviz.errors import CheckpointError
from attnviz.models.precision import cast
from attnviz.models.weights.checkpoint import Checkpoint
from attnviz.models.weights.grid import shape_of
from attnviz.models.weights.inferred import SEPARATE_BIAS
from attnviz.models.weights.layouts import HEADS, POOL

ROPE_TOLERANCE = 0.01
"""Relative; Meta stores rotation periods rounded to bfloat16, which is within 0.4 %."""


def load_strictly(module: nn.Module, checkpoint: Checkpoint) -> int:
    """Give the module the checkpoint's tensors in place of its own; return how many were loaded.

    Half-precision tensors become float32, all others stay where they are mapped. Heads on either
    side may be without counterpart; a pooling head that the checkpoint does not have is removed.
    Buffers that timm does not save (key bias, rotation periods) are set where the file has them.
    The module must be built for the stored grid of positions.

    Raises:
        CheckpointError: A backbone tensor is missing, unused, or of another shape or kind.
    """
    path = checkpoint.path
    _remove_absent_heads(module, checkpoint)
    own = module.state_dict()
    given = {name: tensor for name, tensor in checkpoint.tensors.items() if name in own}
    wanted = [name for name in own if not HEADS.match(name)]
    missing = [name for name in wanted if name not in given]
    if missing:
        raise CheckpointError(
            f"{path}: loaded {len(wanted) - len(missing)} of {len(wanted)} tensors; "
            f"first missing: {missing[0]}",
            "the weights must have every tensor of the model's backbone",
        )
    for name, tensor in given.items():
        _check(name, tensor, own[name], checkpoint)
    buffers = dict(module.named_buffers())
    # A bias that is zero throughout may be left out: the module without it is the same.
    rest = [
        name
        for name, tensor in checkpoint.tensors.items()
        if name not in own
        and (name in buffers or not (SEPARATE_BIAS.search(name) and not bool(tensor.any())))
    ]
    unused = [
        name
        for name in rest
        if name not in buffers and not HEADS.match(name) and not name.startswith(POOL)
    ]
    if unused:
        raise CheckpointError(
            f"{path}: {len(unused)} tensors have no counterpart in the model, the first is "
            f"{unused[0]}",
            "the weights are of another model, or of one with other parts",
        )
    _check_rotation(module, checkpoint)
    module.load_state_dict(
        {name: _float32(tensor) for name, tensor in given.items()}, strict=False, assign=True
    )
    with torch.no_grad():
        for name in rest:
            if name in buffers:
                _check(name, checkpoint.tensors[name], buffers[name], checkpoint)
                buffers[name].copy_(checkpoint.tensors[name])
    return sum(name in given for name in wanted)


def _remove_absent_heads(module: Any, checkpoint: Checkpoint) -> None:
    """Drop what would keep undefined numbers: heads that the checkpoint has no weights for."""
    if hasattr(module, "attn_pool") and not any(n.startswith(POOL) for n in checkpoint.tensors):
        module.attn_pool = None
    if hasattr(module, "fc_norm") and "fc_norm.weight" not in checkpoint.tensors:
        module.fc_norm = nn.Identity()


def move(module: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """The module on a device, with its matrix products in a number type.

    Nothing is copied where both are right already.

    Rotation periods stay float32 and as loaded, so that the rotation is computed in float32, as
    Meta's code does: timm would build them anew, without the rounding of the file.
    """
    periods = getattr(getattr(module, "rope", None), "periods", None)
    module = module.to(device=device)
    cast(module, dtype)
    if periods is not None:
        module.rope.periods = periods.to(device=device)
    return module


def _check(name: str, tensor: Tensor, own: Tensor, checkpoint: Checkpoint) -> None:
    if not tensor.is_floating_point():
        kind = str(tensor.dtype).removeprefix("torch.")
        raise CheckpointError(
            f"{checkpoint.path}: {name} is {kind}; quantised weights cannot be read"
        )
    if tensor.shape != own.shape:
        raise CheckpointError(
            f"{checkpoint.path}: {name} is {shape_of(tensor)} in the weights, "
            f"{shape_of(own)} in the model",
            "choose the model that these weights were trained for",
        )


def _check_rotation(module: Any, checkpoint: Checkpoint) -> None:
    """The rotation is built, not loaded: its base must be that of the weights."""
    periods = getattr(getattr(module, "rope", None), "periods", None)
    if periods is None:
        return
    count, theta = len(periods), checkpoint.inferred.rope_theta
    stored = checkpoint.tensors.get("rope.periods")
    if stored is None and theta is not None:
        stored = theta ** (torch.arange(count, dtype=torch.float32) / count)
    if stored is None:
        return
    if stored.shape != periods.shape or bool(
        ((stored.float() / periods.cpu() - 1).abs() > ROPE_TOLERANCE).any()
    ):
        raise CheckpointError(
            f"{checkpoint.path}: rotary periods {_range(stored)} in the weights, "
            f"{_range(periods)} in the model"
        )


def _range(periods: Tensor) -> str:
    return f"{float(periods[0]):.4g} to {float(periods[-1]):.4g} ({len(periods)})"


def _float32(tensor: Tensor) -> Tensor:
    return tensor.float()  # no copy where it is float32 already
