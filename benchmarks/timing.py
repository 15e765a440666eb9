"""Interleaved timing: on a shared machine only ratios of times close together mean anything."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping

Work = Callable[[], object]


def interleaved(
    works: Mapping[str, Work], rounds: int, *, warm_up: bool = True
) -> dict[str, list[float]]:
    """Seconds of each work, run in turn ``rounds`` times after a warm-up round.

    Each round has an order of its own: what ran before leaves caches and memory to the next.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    names, order = list(works), random.Random(0)
    for turn in range(rounds + warm_up):
        order.shuffle(names)
        for name in names:
            start = time.perf_counter()
            works[name]()
            if turn or not warm_up:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratios(seconds: Mapping[str, list[float]], base: str) -> dict[str, float]:
    """Median over rounds of each time divided by that of ``base`` in the same round."""
    return {
        name: statistics.median(
            own / plain for own, plain in zip(times, seconds[base], strict=True)
        )
        for name, times in seconds.items()
    }
