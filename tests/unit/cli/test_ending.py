"""What an interrupted run that does not come to its end still says."""

from __future__ import annotations

import io
import os
import signal
from threading import Event

import pytest

from attnviz.cli import ending
from attnviz.cli.report import Report
from attnviz.domain.events import Failed
from attnviz.errors import ImageError


class _EndedError(Exception):
    pass


@pytest.fixture
def interrupted(monkeypatch):
    """The thread that hears of Ctrl-C, run at once; the end of the process is an exception."""
    monkeypatch.setattr(ending, "PATIENCE_SECONDS", 0)

    def end(code: int) -> None:
        raise _EndedError(code)

    monkeypatch.setattr(ending.os, "_exit", end)

    def run() -> None:
        heard, told = os.pipe()
        os.write(told, bytes([signal.SIGINT]))
        with pytest.raises(_EndedError, match="130"):
            ending._end_when_interrupted(heard)

    return run


def test_a_run_that_is_still_busy_says_how_far_it_came(interrupted):
    stream = io.StringIO()

    def events():
        yield Failed("a.png", ImageError("broken"))
        interrupted()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Report(out=io.StringIO(), err=stream).consume(events())
    # Once by the thread, while the run was busy, and once by the run itself, which came to its end.
    assert stream.getvalue().count("stopped: 0 of 1 done, 1 failed") == 2
    assert not ending._last_words


def test_a_terminal_that_is_held_delays_the_end_by_a_moment_only(interrupted, monkeypatch):
    monkeypatch.setattr(ending, "LAST_WORDS_SECONDS", 0.01)
    never = Event()
    with ending.last_words(never.wait):
        interrupted()
    never.set()
