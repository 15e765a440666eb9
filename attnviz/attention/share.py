"""Work on a layer shared among threads that each run torch alone.

A block of attention takes half a dozen short operations. Left to torch, each of them is split over
all cores and waits for the slowest, and hands half of its block to another core's cache; on a busy
machine the waiting costs several times the work. Here each thread takes whole strips of rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from threading import Lock

import torch
from torch import Tensor


def share(work: Callable[[int], None], count: int) -> None:
    """``work(0)`` to ``work(count - 1)``, on as many threads as torch uses, in no order.

    The first exception of a piece of work is raised once all threads have ended.
    """
    threads = min(torch.get_num_threads(), count)
    if threads <= 1:
        for place in range(count):
            work(place)
        return
    places = iter(range(count))
    lock = Lock()
    stopped = False

    def take() -> int | None:
        with lock:
            return None if stopped else next(places, None)

    inference = torch.is_inference_mode_enabled()

    def turn() -> None:
        nonlocal stopped
        torch.set_num_threads(1)
        try:
            with torch.inference_mode(inference):
                while (place := take()) is not None:
                    work(place)
        except BaseException:
            stopped = True
            raise

    before = torch.get_num_threads()
    turns = [_pool(os.getpid(), threads).submit(turn) for _ in range(threads)]
    try:
        wait(turns)
    finally:
        stopped = True
        wait(turns)
        # The matrix library's setting is one for all threads, unlike torch's own.
        torch.set_num_threads(before)
    for done in turns:
        done.result()


@cache
def _pool(_process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that stay: a new one would set up its buffers for every layer. One pool a process."""
    return ThreadPoolExecutor(threads, thread_name_prefix="attention")


class OrderedSum:
    """A sum of tensors that arrive in any order, added by their place: the same bits every time."""

    def __init__(self, total: Tensor) -> None:
        self.total = total
        self._next = 0
        self._waiting: dict[int, Tensor] = {}
        self._lock = Lock()

    def add(self, place: int, part: Tensor) -> None:
        """Add the part of a place, once all places from 0 to it have come."""
        with self._lock:
            self._waiting[place] = part
            while self._next in self._waiting:
                self.total += self._waiting.pop(self._next)
                self._next += 1
