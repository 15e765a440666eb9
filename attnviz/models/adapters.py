"""Adapters of peft (LoRA and its relatives) inside a live module, merged without touching it.

A layer with adapters computes W x + B A x. What is shown is the plain layer of the merged weights,
which peft itself computes, on a copy of that layer alone.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from attnviz.errors import UnsupportedModelError

HOOKS = ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")
"""How the attributes end in which a module keeps its hooks."""


def merged_layers(live: nn.Module) -> dict[str, nn.Module]:
    """The plain layer for each layer with adapters, by its name in ``live``; the copies are ours.

    Raises:
        UnsupportedModelError: Adapters that cannot be merged.
    """
    merged: dict[str, nn.Module] = {}
    for name, part in live.named_modules():
        if any(name.startswith(f"{outer}.") for outer in merged):
            continue
        if _has_adapters(part):
            merged[name] = _merged(name, part)
        elif hasattr(part, "modules_to_save") and hasattr(part, "original_module"):
            merged[name] = copy.deepcopy(_saved(part), _no_hooks(part))
    return merged


def with_merged(
    tensors: Mapping[str, Tensor], merged: Mapping[str, nn.Module]
) -> dict[str, Tensor]:
    """A state dict with the tensors of the plain layers in place of those with adapters."""
    out = {
        name: tensor
        for name, tensor in tensors.items()
        if not any(name.startswith(f"{layer}.") for layer in merged)
    }
    for layer, plain in merged.items():
        out |= {f"{layer}.{name}": tensor for name, tensor in plain.state_dict().items()}
    return out


def _has_adapters(part: Any) -> bool:
    return hasattr(part, "base_layer") and callable(getattr(part, "merge", None))


def _merged(name: str, part: Any) -> nn.Module:
    own: Any = copy.deepcopy(part, _no_hooks(part))
    try:
        if own.disable_adapters:
            if own.merged:
                own.unmerge()
        elif not own.merged:
            own.merge(safe_merge=True)
    except Exception as error:
        raise UnsupportedModelError(
            f"the adapters of {name} ({type(part).__name__}) cannot be merged: {error}",
            "merge them with peft, and give the merged model",
        ) from error
    plain: nn.Module = own.get_base_layer()
    return plain


def _saved(part: Any) -> nn.Module:
    """The copy that is trained in place of a module, or the module itself where none is active."""
    active = [name for name in part.active_adapters if name in part.modules_to_save]
    if part.disable_adapters or not active:
        original: nn.Module = part.original_module
        return original
    saved: nn.Module = part.modules_to_save[active[0]]
    return saved


def _no_hooks(part: nn.Module) -> dict[int, Any]:
    """What a deep copy shall take for the hooks that it meets: none, so that none runs."""
    return {
        id(value): OrderedDict()
        for each in part.modules()
        for attribute, value in vars(each).items()
        if attribute.endswith(HOOKS)
    }
