"""What a run leaves beside its figures: failures.csv, the table of numbers, the summary figure."""

from __future__ import annotations

import contextlib
import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.domain.events import Done, Failed, RunFilesWritten, Skipped, Started
from attnviz.domain.kinds import HeadsRequest
from attnviz.domain.requests import InputRequest, ModelRequest, OutputRequest, RunRequest
from attnviz.errors import ImageError, OutputError
from attnviz.output.failures import failures_path, write_failures
from attnviz.output.read_record import read_record
from attnviz.output.table import TableFile
from attnviz.runs.collect import collect_outputs
from attnviz.runs.summary import SHARES, Histogram
from tests.helpers import kinds
from tests.helpers.command_line import arrays, files_below
from tests.helpers.photos import save_scene
from tests.helpers.pictures import as_file, model_info

ROW = {"layer": 3, "head": 0, "entropy": 1.5, "entropy_share": 0.5}


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def request_in(tmp_path):
    def make(**output: object) -> RunRequest:
        return RunRequest(
            HeadsRequest(),
            ModelRequest(),
            InputRequest(("in",)),
            OutputRequest(tmp_path / "o", **output),
        )

    (tmp_path / "o").mkdir()
    return make


def done(name: str, *rows: dict[str, object]) -> Done:
    return Done(as_file(Path(name)), (), {}, rows)


def started(total: int) -> Started:
    return Started(total, model_info())


def interrupted_after(*events):
    yield from events
    raise KeyboardInterrupt


# --- failures ----------------------------------------------------------------------------------


def test_failures_are_listed_and_the_list_goes_when_nothing_fails(real, tiny, tmp_path):
    save_scene(tmp_path / "in" / "a.png", 32, 32)
    save_scene(tmp_path / "in" / "failures.png", 32, 32)
    bad = tmp_path / "in" / 'b, "c"\n.png'
    bad.write_bytes(b"")
    run = real("heads", "in", *tiny, "--out", "o")
    assert run.code == 1
    assert "note: the failures are listed in o/failures.csv" in run.err.splitlines()
    assert "failures.csv" not in run.out
    (row,) = rows_of(tmp_path / "o" / "failures.csv")
    assert row["image"] == str(Path("in") / bad.name)
    assert "is empty (0 bytes)" in row["reason"]
    assert row["hint"] == "copy or export the image again"
    bad.unlink()
    assert real("heads", "in", *tiny, "--out", "o").code == 0
    assert files_below(tmp_path / "o") == ["a.heads.png", "failures.heads.png"]


def test_a_file_of_that_name_that_is_another_s_is_left_alone(tmp_path):
    theirs = tmp_path / "failures.csv"
    theirs.write_text("id,when\n1,2\n")
    assert write_failures(tmp_path, [("a.png", "bad", "")]).path == failures_path(tmp_path)
    assert write_failures(tmp_path, []) is None
    assert theirs.read_text() == "id,when\n1,2\n"
    assert files_below(tmp_path) == ["failures.csv"]


def test_a_run_that_never_started_leaves_the_list_and_the_table_of_the_last(request_in, tmp_path):
    request = request_in(table=tmp_path / "t.csv")
    failures = tmp_path / "o" / "failures.csv"
    write_failures(tmp_path / "o", [("a.png", "bad", "")])
    (tmp_path / "t.csv").write_text("mine")

    def refused():
        raise ImageError("no such model")
        yield

    with pytest.raises(ImageError):
        list(collect_outputs(request, refused()))
    assert rows_of(failures)
    assert (tmp_path / "t.csv").read_text() == "mine"
    assert files_below(tmp_path) == ["o/failures.csv", "t.csv"]


def test_an_interrupted_run_keeps_what_it_finished(request_in, tmp_path):
    request = request_in(table=tmp_path / "t.csv", summary=True)
    failure = Failed("b.png", ImageError("b.png is bad", "mend it"))
    events = interrupted_after(started(9), done("a.png", ROW), failure)
    seen = collect_outputs(request, events)
    with pytest.raises(KeyboardInterrupt):
        list(seen)
    assert rows_of(tmp_path / "t.csv") == [
        {"image": "a.png", **{name: str(value) for name, value in ROW.items()}}
    ]
    assert rows_of(tmp_path / "o" / "failures.csv") == [
        {"image": "b.png", "reason": "b.png is bad", "hint": "mend it"}
    ]
    assert files_below(tmp_path) == ["o/failures.csv", "t.csv"]


def test_failed_pictures_are_not_held_in_memory(request_in):
    import gc
    import weakref

    class HeavyError(ImageError):
        pass

    def events():
        yield started(2)
        for _ in range(2):
            error = HeavyError("bad")
            held.append(weakref.ref(error))
            yield Failed("a.png", error)
            del error
        gc.collect()
        assert held[0]() is None

    held: list[weakref.ref] = []
    assert any(
        isinstance(event, RunFilesWritten) for event in collect_outputs(request_in(), events())
    )


# --- the table ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", kinds.BY_DEFAULT)
def test_the_table_has_the_rows_of_every_figure(real, tiny, photos, tmp_path, command):
    run = real(command, photos, *tiny, "--table", "deep/t.csv", "--json", "--out", "o")
    assert run.code == 0, run.err
    records = [json.loads(line) for line in run.out.splitlines()]
    assert records[-1] == {"status": "written", "kind": "table", "path": "deep/t.csv"}
    expected = [
        {"image": record["image"], **row} for record in records[:-1] for row in record["table"]
    ]
    rows = rows_of(tmp_path / "deep" / "t.csv")
    assert len(rows) >= 4
    assert [list(row) for row in rows] == [list(row) for row in expected]
    assert rows == [
        {name: "" if value is None else str(value) for name, value in row.items()}
        for row in expected
    ]
    assert files_below(tmp_path / "deep") == ["t.csv"]


@pytest.mark.parametrize(
    "call",
    [
        ("heads",),
        ("layers",),
        ("rollout",),
        ("patch", "--at", "0,0"),
        ("score",),
        ("matrix",),
        ("qkv",),
        ("features",),
        ("features", "--outlier-threshold", "1"),
        ("relevance", "--like", "photos/1.png"),
        ("discover", "--method", "lost"),
        ("match", "--like", "photos/1.png"),
        ("faithful", "--show", "mean", "--chefer"),
        ("compare", "--show", "mean,rollout,pca"),
    ],
    ids=" ".join,
)
def test_parquet_holds_the_same_numbers(real, tiny, photos, tmp_path, call):
    """The type of a column is that of its first value: it must be that of all others."""
    parquet = pytest.importorskip("pyarrow.parquet")
    command, *options = call
    asked = ("--table", "t.parquet", "--json", "--out", "o", "--dpi", "30")
    run = real(command, photos / "10.png", *tiny, *options, *asked)
    assert run.code == 0, run.err
    table = parquet.read_table(tmp_path / "t.parquet")
    record = json.loads(run.out.splitlines()[0])
    rows = [{"image": str(photos / "10.png"), **row} for row in record["table"]]
    assert table.column_names == list(rows[0])
    if command == "layers":
        kinds = [str(field.type) for field in table.schema]
        assert kinds[:4] == ["string", "int64", "int64", "double"]
    assert table.to_pylist() == rows


def test_rows_of_a_long_table_are_not_held(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("attnviz.output.table._ROWS_A_GROUP", 10)
    table = TableFile(tmp_path / "t.parquet")
    for number in range(95):
        table.add(Path(f"{number}.png"), [{"head": number, "entropy": number / 7}])
        assert len(table._rows._held) < 10
    table.close()
    read = parquet.read_table(tmp_path / "t.parquet")
    assert read["head"].to_pylist() == list(range(95))
    assert parquet.ParquetFile(tmp_path / "t.parquet").num_row_groups == 10


def test_without_its_package_parquet_is_refused_with_the_way_to_get_it(
    attnviz_command, monkeypatch
):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    outcome = attnviz_command("heads", "a.jpg", "--table", "t.parquet")
    assert outcome.code == 2
    assert "needs the package pyarrow" in outcome.err
    assert "pip install 'attnviz[table]'" in outcome.err


@pytest.mark.parametrize("name", ["t.xlsx", "t", "t.csv.gz"])
def test_another_suffix_is_refused(attnviz_command, name):
    outcome = attnviz_command("heads", "a.jpg", "--table", name)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: --table: {name} ends neither in .csv nor in .parquet")


def test_a_place_where_no_table_can_be_is_told_before_the_model_loads(
    real, tiny, photos, tmp_path, monkeypatch
):
    monkeypatch.setattr("attnviz.models.load.load_backbone", lambda _request: pytest.fail("loaded"))
    (tmp_path / "file").touch()
    (tmp_path / "t.csv").mkdir()
    for place in ("file/t.csv", "t.csv"):
        run = real("heads", photos, *tiny, "--table", place)
        assert run.code in (1, 2)
        assert place in run.err
        assert "Traceback" not in run.err


def test_a_resumed_run_has_the_whole_table(real, tiny, photos, tmp_path):
    command = ("heads", photos, *tiny, "--table", "t.csv", "--out", "o", "--skip-existing")
    assert real(*command).code == 0
    whole = (tmp_path / "t.csv").read_bytes()
    (tmp_path / "t.csv").unlink()
    (tmp_path / "o" / "2.heads.png").unlink()
    before = (tmp_path / "o" / "1.heads.png").stat().st_mtime_ns
    run = real(*command)
    assert run.err.splitlines()[-1] == "1 of 4 done, 3 skipped"
    assert (tmp_path / "t.csv").read_bytes() == whole
    assert (tmp_path / "o" / "1.heads.png").stat().st_mtime_ns == before


def test_names_that_are_no_text_stand_in_the_table_byte_for_byte(tmp_path):
    name = b'caf\xe9 "x",\n.png'.decode("utf-8", "surrogateescape")
    table = TableFile(tmp_path / "t.csv")
    table.add(Path(name), [{"head": 0, "distance": None}])
    table.close()
    assert rows_of(tmp_path / "t.csv") == [{"image": name, "head": "0", "distance": ""}]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, monkeypatch, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    from attnviz.output import atomic

    @contextlib.contextmanager
    def full(_folder):
        with Path("/dev/full").open("wb", buffering=0) as stream:
            yield stream, tmp_path / "never"

    monkeypatch.setattr(atomic, "_temporary", full)
    table = TableFile(tmp_path / f"t.{suffix}")

    def fill():
        for number in range(20_000):
            table.add(Path(f"{number}.png"), [{"head": 0}])
        table.close()

    with pytest.raises(OutputError, match="No space left"):
        fill()
    assert files_below(tmp_path) == []


# --- the summary -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", kinds.SUMMARISED)
def test_one_figure_of_all_pictures(real, tiny, photos, tmp_path, command):
    run = real(command, photos, *tiny, "--summary", "-f", "png", "-f", "pdf", "--out", "o")
    assert run.code == 0, run.err
    assert run.out.splitlines()[-2:] == [f"o/{command}.summary.png", f"o/{command}.summary.pdf"]
    record = read_record(tmp_path / "o" / f"{command}.summary.png")
    assert record is not None
    assert (record["pictures"], record["command"], record["model"]) == (4, command, "tiny.pth")
    with Image.open(tmp_path / "o" / f"{command}.summary.png") as image:
        assert np.asarray(image).std() > 5
    # It is no picture of the next run, not even where input and output are one folder.
    run = real(command, tmp_path / "o", *tiny, "--out", "o")
    assert "o holds no images" in run.err
    assert run.code == 1
    info = real("info", f"o/{command}.summary.png")
    assert info.code == 0
    assert "pictures" in info.out


def test_a_picture_called_like_the_command_is_not_in_the_way(real, tiny, tmp_path):
    save_scene(tmp_path / "in" / "heads.png", 32, 32)
    save_scene(tmp_path / "in" / "heads.summary.png", 32, 32)
    assert real("heads", "in", *tiny, "--summary", "--out", "o").code == 0
    assert files_below(tmp_path / "o") == [
        "heads.heads.png", "heads.summary.heads.png", "heads.summary.png",
    ]  # fmt: skip


def test_a_run_without_a_result_has_no_summary(request_in, tmp_path):
    events = [started(1), Failed("a.png", ImageError("bad"))]
    list(collect_outputs(request_in(summary=True), iter(events)))
    assert files_below(tmp_path) == ["o/failures.csv"]


def test_numbers_of_skipped_pictures_count_in_the_summary(real, tiny, photos, tmp_path):
    command = ("heads", photos, *tiny, "--summary", "--out", "o", "--skip-existing")
    assert real(*command).code == 0
    first = (tmp_path / "o" / "heads.summary.png").read_bytes()
    assert real(*command).err.splitlines()[-1] == "0 of 4 done, 4 skipped"
    assert (tmp_path / "o" / "heads.summary.png").read_bytes() == first


def test_quantiles_of_counts_are_those_of_the_values():
    values = np.random.default_rng(0).gamma(3, 2, 4001)
    histogram = Histogram(0.005)
    for value in values:
        histogram.add(float(value))
    np.testing.assert_allclose(histogram.quantiles(SHARES), np.quantile(values, SHARES), atol=0.006)
    few = Histogram(0.25)
    for value in (3.0, 1.0, 2.0, 10.0):
        few.add(value)
    np.testing.assert_allclose(few.quantiles((0, 0.5, 1)), [1.125, 2.625, 10.125])


def test_the_summary_shows_the_saved_numbers(real, tiny, photos, tmp_path, monkeypatch):
    drawn = []

    def note(spreads, pictures, limit, *rest):
        drawn.append((spreads, pictures, limit))
        return ()

    monkeypatch.setattr("attnviz.runs.summary.draw_distributions", note)
    run = real("heads", photos, *tiny, "--summary", "--save-data", "--size", "32", "--fit",
               "squash", "--out", "o")  # fmt: skip
    assert run.code == 0, run.err
    saved = [arrays(path) for path in (tmp_path / "o").rglob("*.npz")]
    ((spreads, pictures, limit),) = drawn
    assert pictures == len(saved) == 4
    assert limit == pytest.approx(np.log(17), abs=1e-3)
    for name, within in (("entropy", 0.006), ("distance", 0.3)):
        for (layer, head), values in spreads[name].items():
            assert layer == 3
            own = [float(each[name][head]) for each in saved]
            np.testing.assert_allclose(values, np.quantile(own, SHARES), atol=within)


def test_skipped_events_count_only_where_they_carry_numbers(request_in, tmp_path):
    events = [started(1), Skipped(as_file(Path("a.png")), "why")]
    list(collect_outputs(request_in(table=tmp_path / "t.csv"), iter(events)))
    assert (tmp_path / "t.csv").read_text() == "image\n"
