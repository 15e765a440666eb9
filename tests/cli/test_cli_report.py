from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path

import pytest

from attnviz.cli.progress import BarProgress, LineProgress, duration, make_progress, pace
from attnviz.cli.report import Report, print_table
from attnviz.domain import ImageFile, WrittenFile
from attnviz.domain.events import Done, Event, Failed, Skipped, Started
from attnviz.errors import (
    CheckpointError,
    ImageError,
    OutputError,
    UnknownModelError,
    UsageError,
)
from tests.helpers.pictures import model_info

ROWS = ({"head": 0, "entropy": 5.87654321, "distance": None}, {"head": 1, "entropy": 4.0})


def started(total: int, **more: tuple) -> Started:
    return Started(total, model_info(), **more)


def file_of(name: str) -> ImageFile:
    return ImageFile(Path("photos") / name, Path(name))


def done(name: str, **more: object) -> Done:
    stem = Path(name).stem
    written = tuple(
        WrittenFile(Path(f"out/{stem}.heads.{kind}"), "figure") for kind in ("png", "pdf")
    )
    return Done(file_of(name), written, {"image": f"photos/{name}"}, **more)


def failed(name: str, reason: str = "is cut short", hint: str = "") -> Failed:
    return Failed(f"photos/{name}", ImageError(f"photos/{name} {reason}", hint))


def told(events: list[Event | BaseException], *options: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    report = Report(as_json="json" in options, quiet="quiet" in options, out=out, err=err)
    code = report.consume(replay(events))
    return code, out.getvalue(), err.getvalue()


def replay(events: list[Event | BaseException]):
    for event in events:
        if isinstance(event, BaseException):
            raise event
        yield event


def test_standard_output_is_the_written_files_and_nothing_else() -> None:
    code, out, err = told([started(2), done("a.jpg"), done("b.jpg")])
    assert code == 0
    assert out.splitlines() == [
        "out/a.heads.png", "out/a.heads.pdf", "out/b.heads.png", "out/b.heads.pdf",
    ]  # fmt: skip
    assert err.splitlines() == ["2 of 2 done"]


def test_a_failure_is_told_at_once_counted_and_gives_1() -> None:
    events = [started(10), failed("b.jpg", hint="mend it"), *[done(f"{n}.jpg") for n in range(9)]]
    code, out, err = told(events)
    assert code == 1
    assert len(out.splitlines()) == 18
    assert err.splitlines() == [
        "failed: photos/b.jpg is cut short", "  mend it", "9 of 10 done, 1 failed",
    ]  # fmt: skip


def test_skipped_pictures_are_no_failures() -> None:
    code, out, err = told([started(2), Skipped(file_of("a.jpg"), "current"), done("b.jpg")])
    assert (code, err) == (0, "1 of 2 done, 1 skipped\n")
    assert "a.heads" not in out


def test_a_run_that_found_nothing_gives_1_with_the_reason() -> None:
    code, out, err = told([Failed("gone.jpg", ImageError("gone.jpg does not exist"))])
    assert (code, out) == (1, "")
    assert err.splitlines() == ["failed: gone.jpg does not exist", "0 of 1 done, 1 failed"]
    assert told([]) == (1, "", "error: no images found\n")
    assert told([started(0)])[0] == 1


def test_wrong_use_that_only_a_picture_shows_gives_2_when_nothing_was_done() -> None:
    wrong = Failed("photos/a.jpg", UsageError("--at 99,99 is outside the grid 28x28"))
    assert told([started(1), wrong])[0] == 2
    assert told([started(2), wrong, done("b.jpg")])[0] == 1
    assert told([started(2), wrong, failed("b.jpg")])[0] == 1


def test_a_failure_names_the_picture_once_and_in_full() -> None:
    for message in ("photos/a.jpg: no memory", "a.jpg: no memory", "no memory"):
        _, _, err = told([started(1), Failed("photos/a.jpg", ImageError(message))])
        assert err.splitlines()[0] == "failed: photos/a.jpg: no memory"


def test_names_cannot_steer_the_terminal() -> None:
    event = Failed("evil\x1b[2J\nname.jpg", ImageError("no memory"))
    _, _, err = told([started(1), event])
    assert err.splitlines()[0] == r"failed: evil\x1b[2J\nname.jpg: no memory"


def test_json_is_one_record_a_line() -> None:
    events = [
        started(3),
        done("a.jpg", table=ROWS, notes=("first frame taken",)),
        failed("b.jpg", hint="mend it"),
        Skipped(file_of("c.jpg"), "current"),
    ]
    code, out, _ = told(events, "json")
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert records == [
        {"status": "done", "image": "photos/a.jpg", "notes": ["first frame taken"]},
        {
            "status": "failed",
            "image": "photos/b.jpg",
            "error": "photos/b.jpg is cut short",
            "hint": "mend it",
            "kind": "ImageError",
        },
        {"status": "skipped", "image": "photos/c.jpg", "reason": "current"},
    ]


def test_json_has_no_words_that_json_does_not_know() -> None:
    event = Done(file_of("a.jpg"), (), {"table": [{"distance": math.nan, "focus": math.inf}]})
    _, out, _ = told([started(1), event], "json")
    assert json.loads(out)["table"] == [{"distance": None, "focus": None}]


def test_the_table_is_shown_for_one_picture_on_standard_error() -> None:
    _, out, err = told([started(1), done("a.jpg", table=ROWS)])
    assert "entropy" not in out
    lines = [line.split() for line in err.splitlines() if line.strip()]
    assert ["head", "entropy", "distance"] in lines
    assert ["0", "5.877"] in lines
    assert ["1", "4.000"] in lines
    assert "entropy" not in told([started(2), done("a.jpg", table=ROWS), done("b.jpg")])[2]


def test_text_of_a_table_is_shown_literally() -> None:
    stream = io.StringIO()
    print_table([{"name": "[red]x[/red]"}], stream)
    assert "[red]x[/red]" in stream.getvalue()


def test_notes_and_passed_over_files_are_told_once() -> None:
    skipped = tuple((Path("photos") / f"{n}.txt", "no image suffix") for n in range(5))
    begin = started(1, notes=("head weights left over",), skipped=skipped)
    _, _, err = told([begin, done("a.jpg", notes=("first frame taken",))])
    assert err.splitlines() == [
        "note: head weights left over",
        (
            "skipped 5 files: 0.txt (no image suffix), 1.txt (no image suffix), "
            "2.txt (no image suffix) and 2 more"
        ),
        "note: photos/a.jpg: first frame taken",
        "1 of 1 done",
    ]


def test_quiet_leaves_failures_alone() -> None:
    begin = started(2, notes=("note",), skipped=((Path("x.txt"), "hidden"),))
    assert told([begin, done("a.jpg", table=ROWS), done("b.jpg")], "quiet")[2] == ""
    _, out, err = told([begin, done("a.jpg"), failed("b.jpg")], "quiet")
    assert err.splitlines() == ["failed: photos/b.jpg is cut short", "1 of 2 done, 1 failed"]
    assert out


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), CheckpointError("no weights")])
def test_what_was_finished_is_told_when_a_run_is_cut_off(problem: BaseException) -> None:
    out, err = io.StringIO(), io.StringIO()
    report = Report(out=out, err=err)
    with pytest.raises(type(problem)):
        report.consume(replay([started(9), done("a.jpg"), problem]))
    assert err.getvalue() == "stopped: 1 of 9 done\n"
    assert out.getvalue().splitlines()[0] == "out/a.heads.png"


def test_the_pipeline_is_closed_when_the_reader_of_standard_output_is_gone() -> None:
    closed = []

    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    def events():
        try:
            yield started(2)
            yield done("a.jpg")
            yield done("b.jpg")
        finally:
            closed.append(True)

    err = io.StringIO()
    report = Report(out=Gone(), err=err)
    with pytest.raises(BrokenPipeError):
        report.consume(events())
    assert closed
    assert err.getvalue() == ""


def test_plain_progress_is_a_line_now_and_then() -> None:
    now = [0.0]
    stream = io.StringIO()
    progress = LineProgress(stream, seconds=5, clock=lambda: now[0])
    progress.start(100)
    for count in range(1, 101):
        now[0] += 1
        progress.update(count - count // 50, count // 50)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 19
    assert lines[0] == "5 of 100, 1 a second, 2 min left"
    assert lines[9] == "50 of 100, 1 failed, 1 a second, 50 s left"


def test_pace() -> None:
    assert [pace(r) for r in (12.34, 1, 0.18)] == ["12 a second", "1 a second", "5.6 s each"]


def test_durations() -> None:
    assert [duration(s) for s in (0.2, 59, 90, 3599, 3600, 11100)] == [
        "0 s", "59 s", "2 min", "60 min", "1 h 00 min", "3 h 05 min",
    ]  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_lines_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    report = Report(out=screen, err=screen)
    assert isinstance(make_progress(screen, quiet=False), BarProgress)
    code = report.consume(replay([started(2), failed("[b].jpg"), done("a.jpg")]))
    text = screen.getvalue()
    assert code == 1
    assert "2/2" in text
    assert "failed: photos/[b].jpg is cut short" in text
    assert "out/a.heads.png" in text
    assert text.endswith("1 of 2 done, 1 failed\n")


def test_the_bar_shows_how_many_how_fast_how_long_and_how_many_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    progress = BarProgress(screen)
    progress._console.size = (120, 25)
    with progress:
        progress.start(100)
        monkeypatch.setattr("time.monotonic", lambda: progress._begun + 10)
        progress.update(18, 2)
        progress._display.refresh()
        shown = screen.getvalue().rsplit("\r", 1)[-1]
    assert "20/100" in shown
    assert "2 a second" in shown
    assert "2 failed" in shown
    assert re.search(r"\d+:\d\d:\d\d|-:--:--", shown)


def test_a_pipe_gets_its_lines_untouched_beside_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    Report(out=out, err=Terminal()).consume(replay([started(2), done("a.jpg"), done("b.jpg")]))
    assert len(out.getvalue().splitlines()) == 4
    assert "\x1b" not in out.getvalue()


def test_the_boundary_prints_message_and_hint(attnviz_command, pipeline) -> None:
    for error, code in (
        (UsageError("--out: x is not a folder", "choose another"), 2),
        (UnknownModelError("there is no model 'x'", "see attnviz models"), 2),
        (CheckpointError("w.pth is no checkpoint", "give another"), 1),
        (OutputError("out cannot be written"), 1),
    ):
        pipeline.events = [error]
        outcome = attnviz_command("heads", "a.jpg")
        expected = f"error: {error.message}\n" + (f"  {error.hint}\n" if error.hint else "")
        assert (outcome.code, outcome.err, outcome.out) == (code, expected, "")
        assert pipeline.closed


def test_an_interrupt_gives_130(attnviz_command, pipeline) -> None:
    pipeline.events = [started(2), done("a.jpg"), KeyboardInterrupt()]
    outcome = attnviz_command("heads", "a.jpg")
    assert outcome.code == 130
    assert outcome.err == "stopped: 1 of 2 done\n"
    assert outcome.out == "out/a.heads.png\nout/a.heads.pdf\n"


def test_a_fault_of_the_program_is_not_hidden(attnviz_command, pipeline) -> None:
    pipeline.events = [ZeroDivisionError("a bug")]
    with pytest.raises(ZeroDivisionError):
        attnviz_command("heads", "a.jpg")


def test_the_code_of_the_run_is_the_code_of_the_command(attnviz_command, pipeline) -> None:
    pipeline.events = [started(2), done("a.jpg"), failed("b.jpg")]
    assert attnviz_command("layers", "a.jpg", "--json").code == 1
