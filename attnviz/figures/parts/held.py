"""Colour limits that are the same in all frames of a video.

A figure asks for its limits in the same order in every frame: the n-th pair of one frame belongs to
the same panels as the n-th of another. ``recording`` notes what some frames would take, ``joined``
spans them all, and ``holding`` draws a frame with those instead of its own. Outside of both, every
figure has its own limits.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

Ends = tuple["NDArray[np.float64]", "NDArray[np.float64]"]
"""Low and high limits, each () or (n,)."""


@dataclass
class _Frame:
    held: Sequence[Ends] | None
    own: list[Ends] = field(default_factory=list)


_FRAME: ContextVar[_Frame | None] = ContextVar("frame", default=None)


def hold(low: float, high: float) -> tuple[float, float]:
    """The limits that a panel has to take: these, or in a video those of all frames."""
    lows, highs = hold_arrays(np.float64(low), np.float64(high))
    return float(lows), float(highs)


def hold_arrays(
    low: NDArray[np.float64] | np.float64, high: NDArray[np.float64] | np.float64
) -> Ends:
    """The same for several pairs at once."""
    own = np.asarray(low, np.float64), np.asarray(high, np.float64)
    frame = _FRAME.get()
    if frame is None:
        return own
    index = len(frame.own)
    frame.own.append(own)
    if frame.held is None or index >= len(frame.held):
        return own
    held = frame.held[index]
    return held if held[0].shape == own[0].shape else own


@contextmanager
def recording() -> Iterator[list[Ends]]:
    """The limits that figures drawn in the block ask for, in a list that grows."""
    yield from _within(None)


@contextmanager
def holding(held: Sequence[Ends]) -> Iterator[list[Ends]]:
    """Figures drawn in the block get these limits; the list holds those that they asked for."""
    yield from _within(held)


def _within(held: Sequence[Ends] | None) -> Iterator[list[Ends]]:
    frame = _Frame(held)
    token = _FRAME.set(frame)
    try:
        yield frame.own
    finally:
        _FRAME.reset(token)


def joined(frames: Sequence[Sequence[Ends]]) -> tuple[Ends, ...]:
    """The limits that span those of all frames, as far as the frames ask for equally many."""
    return tuple(
        (np.minimum.reduce([low for low, _ in each]), np.maximum.reduce([high for _, high in each]))
        for each in zip(*frames, strict=False)
        if len({low.shape for low, _ in each}) == 1
    )


def beyond(own: Sequence[Ends], held: Sequence[Ends]) -> bool:
    """Whether a frame has values outside of the limits that it was drawn with."""
    slack = 1e-6
    return any(
        bool(np.any(low < span[0] - slack * np.abs(span[0])))
        or bool(np.any(high > span[1] + slack * np.abs(span[1])))
        for (low, high), span in zip(own, held, strict=False)
        if low.shape == span[0].shape
    )
