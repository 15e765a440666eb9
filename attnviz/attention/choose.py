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
    return _choose_heads(info, heads, info.heads)


def choose_pool_heads(info: ModelInfo, heads: Sequence[int] | None) -> tuple[int, ...]:
    """As ``choose_heads``, of the heads of the model's attention pooling."""
    return _choose_heads(info, heads, info.pool_heads)


def _choose_heads(info: ModelInfo, heads: Sequence[int] | None, count: int) -> tuple[int, ...]:
    if heads is None:
        return tuple(range(count))
    if not heads:
        raise UsageError("no heads given", f"{info.name} has heads 0 to {count - 1}")
    return tuple(dict.fromkeys(_choose(head, count, "head", info.name) for head in heads))


def need_cls(info: ModelInfo) -> None:
    """Raise where the model lacks a CLS token: its token 0 is a patch."""
    if not info.has_cls:
        reads = "--query pool for its attention pooling" if info.pool_heads else ""
        mean = "--query mean for the mean over all patches"
        others = ", ".join(filter(None, ("use `attnviz patch`", reads)))
        raise UnsupportedModelError(
            f"{info.name} has no CLS token, so it has no CLS attention", f"{others}, or {mean}"
        )


def need_query(info: ModelInfo, query: Query) -> None:
    """Raise where the model lacks what a query stands for: CLS, a register, attention pooling.

    Raises:
        UnsupportedModelError: It has no CLS token or attention pooling.
        UsageError: A register that it does not have.
    """
    if query is Query.CLS:
        need_cls(info)
    if query is Query.POOL and not info.pool_heads:
        raise UnsupportedModelError(
            f"--query pool: {info.name} does not pool its tokens by attention",
            "use --query cls or --query mean; models such as SigLIP have attention pooling",
        )
    if query.register is not None and query.register > info.registers:
        known = {0: "no registers", 1: "one register, r1"}.get(
            info.registers, f"registers r1 to r{info.registers}"
        )
        raise UsageError(f"--query {query} does not exist: {info.name} has {known}")


def query_token(info: ModelInfo, query: Query) -> int | None:
    """The index of the token whose row a query is; None for means over tokens."""
    if query.register is not None:
        return info.prefix - info.registers + query.register - 1
    return 0 if query is Query.CLS else None


def _choose(index: int, count: int, what: str, name: str) -> int:
    if not -count <= index < count:
        raise UsageError(
            f"{what} {index} does not exist: {name} has {what}s 0 to {count - 1}",
            f"negative numbers count from the end, down to {-count}",
        )
    return index % count
