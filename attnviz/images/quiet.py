"""Pillow's warnings, kept inside the thread that reads an image.

``warnings.catch_warnings`` swaps a list that all threads share: two readers that overlap may
restore it in the wrong order and leave the process with filters that nobody asked for. So one
filter is installed for good that matches only in a thread inside ``quiet()``, and nowhere else.
"""

from __future__ import annotations

import logging
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class _ThisThread(threading.local):
    quiet: bool = False


_this_thread = _ThisThread()


class _OnlyWhileQuiet(type):
    def __subclasscheck__(cls, subclass: type) -> bool:
        return _this_thread.quiet


class _AnyWarningWhileQuiet(Warning, metaclass=_OnlyWhileQuiet):
    """A category that every warning belongs to, as seen from a quiet thread only."""


# Without a handler, Python prints a library's log records to stderr.
logging.getLogger("PIL").addHandler(logging.NullHandler())


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore every warning of this thread; those of other threads are shown as before."""
    # Looked up each time: a catch_warnings elsewhere may have put an older list back.
    if not warnings.filters or warnings.filters[0][2] is not _AnyWarningWhileQuiet:
        warnings.simplefilter("ignore", category=_AnyWarningWhileQuiet)
    before, _this_thread.quiet = _this_thread.quiet, True
    try:
        yield
    finally:
        _this_thread.quiet = before
