"""The steps of a page: a bar on a terminal, now and then a line elsewhere, none with --quiet."""

from __future__ import annotations

import io

from attnviz.cli.progress import BarProgress, LineProgress
from attnviz.cli.report import Report
from attnviz.domain.events import Done, Step
from attnviz.domain.explorer import ExploreRequest
from attnviz.domain.requests import InputRequest, ModelRequest
from attnviz.runs.explore import explore
from tests.helpers.photos import save_scene
from tests.helpers.planted import tiny_vit


def events(tmp_path, **options):
    image = save_scene(tmp_path / "a.png", 16, 16)
    inputs = InputRequest((str(image),), size="original")
    request = ExploreRequest(ModelRequest(), inputs, file=tmp_path / "a.html", **options)
    return explore(request, tiny_vit())


def test_every_part_of_the_work_is_a_step(tmp_path):
    _, *steps, done = events(tmp_path)
    assert isinstance(done, Done)
    assert steps == [
        Step("running the model", 0, 5),
        Step("computing the rollout", 1, 5),
        Step("packing layer 0", 2, 5),
        Step("packing layer 1", 3, 5),
        Step("packing layer 2", 4, 5),
    ]
    _, *steps, _ = events(tmp_path, layers=(2,), rollout=False)
    assert steps == [Step("running the model", 0, 2), Step("packing layer 2", 1, 2)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_the_step_and_the_count(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    progress = BarProgress(screen)
    progress._console.size = (120, 25)
    with progress:
        progress.start(1)
        progress.step("running the model", 0, 14)
        progress.step("computing the rollout", 1, 14)
        progress._step_display.refresh()
        line = screen.getvalue().rsplit("\r", 1)[-1]
    assert "1/14" in line
    assert "computing the rollout" in line


def test_the_bar_is_gone_when_the_page_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    assert Report(out=io.StringIO(), err=screen).consume(events(tmp_path)) == 0
    text = screen.getvalue()
    assert "/5" in text
    assert text.endswith("1 of 1 done\n")


def test_a_log_gets_a_line_for_a_step_that_takes_long():
    now = [0.0]
    stream = io.StringIO()
    progress = LineProgress(stream, seconds=5, clock=lambda: now[0])
    progress.start(1)
    for done, seconds in enumerate((1, 3, 7, 1)):
        progress.step(f"packing layer {done}", done, 4)
        now[0] += seconds
    assert stream.getvalue() == "packing layer 3: step 4 of 4\n"


def test_quiet_is_quiet(tmp_path):
    err = io.StringIO()
    assert Report(quiet=True, out=io.StringIO(), err=err).consume(events(tmp_path)) == 0
    assert err.getvalue() == ""
