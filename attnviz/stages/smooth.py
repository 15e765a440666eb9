"""Means of maps over neighbouring frames."""

from __future__ import annotations

from collections import deque
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Item = TypeVar("Item")
Value = TypeVar("Value")


def windows(items: Iterable[Item], count: int) -> Iterator[tuple[Item, tuple[Item, ...]]]:
    """Each item with the ``count`` items around it: fewer at both ends, one more behind if even."""
    before, behind = (count - 1) // 2, count // 2
    held: deque[Item] = deque()
    centre = 0  # where in ``held`` the next item to give stands
    for item in items:
        held.append(item)
        if len(held) - 1 - centre == behind:
            yield held[centre], tuple(held)
            centre += 1
            if centre > before:
                held.popleft()
                centre -= 1
    while centre < len(held):
        yield held[centre], tuple(held)
        centre += 1
        if centre > before:
            held.popleft()
            centre -= 1


def mean_of(values: Sequence[Any], centre: Any) -> Any:
    """The mean of the float arrays of some dataclasses; all else is that of the one in the centre.

    An array whose shape is not the same in all of them is that of the centre too.
    """
    if len(values) == 1 or not is_dataclass(centre):
        return centre
    changes: dict[str, Any] = {}
    for field in fields(centre):
        own = getattr(centre, field.name)
        if not (isinstance(own, np.ndarray) and own.dtype.kind == "f"):
            continue
        arrays = [getattr(each, field.name) for each in values]
        if all(isinstance(each, np.ndarray) and each.shape == own.shape for each in arrays):
            changes[field.name] = np.mean(arrays, axis=0, dtype=np.float64).astype(own.dtype)
    return replace(centre, **changes) if not isinstance(centre, type) else centre


def smoothed(
    items: Iterable[Item], count: int, mean: Callable[[Item, tuple[Item, ...]], Value]
) -> Iterator[Value]:
    """``mean`` of each item and those around it."""
    for item, around in windows(items, count):
        yield mean(item, around)
