"""How the process of the command line ends: soon, and with everything flushed and closed."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INTERRUPTED = 130

PATIENCE_SECONDS = 1.4
"""How long an interrupted run may take to stop by itself: it finishes the figures being drawn."""


LAST_WORDS_SECONDS = 0.3
"""How long saying the last words may take: the main thread may hold the terminal."""

_last_words: list[Callable[[], None]] = []


@contextmanager
def last_words(say: Callable[[], None]) -> Iterator[None]:
    """What an interrupted run still says if it has not come to its end in time.

    A Ray cluster, for example, takes longer to shut down.
    """
    _last_words.append(say)
    try:
        yield
    finally:
        _last_words.remove(say)


def leave(code: int) -> NoReturn:
    """End this process with an exit code.

    The interpreter would take every module and object apart first, which after an import of torch
    takes longer than a figure. What was registered for the end is done (temporary folders go,
    connections close), output is flushed, and the processes that draw are gone.
    """
    try:
        if code == INTERRUPTED:
            _end_children()
        atexit._run_exitfuncs()  # noqa: SLF001 - what the interpreter calls; it has no other name
        _end_children()
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
        _end_children()
    except (OSError, ValueError):
        code = code or 1  # whoever read standard output has left, or it is closed
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)


def watch_interrupts() -> None:
    """See to it that Ctrl-C ends the process in time.

    Python handles a signal between two steps of the main thread, and one step can be a long product
    of matrices or the loading of a library. A thread hears of the signal at once; where the run has
    not come to its end soon after, the thread ends the process. Files that were being written then
    have no name yet, and the next run removes them.
    """
    if os.name != "posix":
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=_end_when_interrupted, args=(heard,), daemon=True).start()


def _end_when_interrupted(heard: int) -> None:
    while signal.SIGINT not in os.read(heard, 64):
        pass
    time.sleep(PATIENCE_SECONDS)
    _end_children()
    for say in tuple(_last_words):
        saying = threading.Thread(target=say, daemon=True)
        saying.start()
        saying.join(LAST_WORDS_SECONDS)
    os._exit(INTERRUPTED)


def _end_children() -> None:
    """Kill the processes that draw, if there are any."""
    drawing = sys.modules.get("attnviz.engines.draw_pool")
    if drawing is not None:
        drawing.end_processes()
