"""Layers, heads and queries of a request, resolved against a loaded model."""

from __future__ import annotations

from collections.abc import Sequence

from attnviz.domain import ModelInfo, Query
from attnviz.errors import UnsupportedModelError, UsageError


def choose_layer(info: ModelInfo, layer: int) -> int:
    """The layer's index from 0; negative counts from the end.

    Raises:
        UsageError: Out of range; the message states the range.
    """
    return _choose(layer, info.depth, "layer", info.name)


def choose_layers(info: ModelInfo, layers: Sequence[int] | None) -> tuple[int, ...]:
    """Sorted indices of the chosen layers, each once; None means all."""
    if layers is None:
        return tuple(range(info.depth))
    if not layers:
        raise UsageError("no layers given", f"{info.name} has layers 0 to {info.depth - 1}")
    return tuple(sorted({choose_layer(info, layer) for layer in layers}))


def choose_heads(info: ModelInfo, heads: Sequence[int] | None) -> tuple[int, ...]:
    """Indices of the chosen heads in the given order, each once; None means all."""
    if heads is None:
        return tuple(range(info.heads))
    if not heads:
        raise UsageError("no heads given", f"{info.name} has heads 0 to {info.heads - 1}")
    return tuple(dict.fromkeys(_choose(head, info.heads, "head", info.name) for head in heads))


def need_cls(info: ModelInfo, query: Query) -> None:
    """Raise where the CLS query needs a CLS token that the model lacks: token 0 is a patch."""
    if query is Query.CLS and not info.has_cls:
        raise UnsupportedModelError(
            f"{info.name} has no CLS token, so it has no CLS attention",
            "use `attnviz patch`, or --query mean for the mean over all patches",
        )


def _choose(index: int, count: int, what: str, name: str) -> int:
    if not -count <= index < count:
        raise UsageError(
            f"{what} {index} does not exist: {name} has {what}s 0 to {count - 1}",
            f"negative numbers count from the end, down to {-count}",
        )
    return index % count
