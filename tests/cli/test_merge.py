"""``attnviz merge``: parts of a table become the table."""

from __future__ import annotations

import csv

import pytest

COLUMNS = ["image", "head", "entropy"]


def write(path, rows, columns=COLUMNS):
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)
        return path
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    values = list(zip(*rows, strict=True)) or [[] for _ in columns]
    parquet.write_table(pa.table(dict(zip(columns, map(list, values), strict=True))), path)
    return path


def read(path):
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8", errors="surrogateescape") as stream:
            return list(csv.reader(stream))[1:]
    from pyarrow import parquet

    return [list(row.values()) for row in parquet.read_table(path).to_pylist()]


ROWS = {
    "a": [["a.png", 0, 1.25], ["a.png", 1, 1 / 3]],
    "b": [["b, \u00e9.png", 0, 2.0]],
}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_rows_of_all_parts_in_their_order(real, tmp_path, suffix):
    parts = [write(tmp_path / f"{name}.{suffix}", rows) for name, rows in ROWS.items()]
    outcome = real("merge", f"all.{suffix}", *parts)
    assert (outcome.code, outcome.out, outcome.err) == (0, f"all.{suffix}\n", "")
    expected = [*ROWS["a"], *ROWS["b"]]
    if suffix == "csv":
        expected = [[str(value) for value in row] for row in expected]
    assert read(tmp_path / f"all.{suffix}") == expected


def test_a_csv_table_of_one_part_is_the_same_bytes(real, tmp_path):
    name = b"\xff\xfe.png".decode("utf-8", "surrogateescape")
    part = write(tmp_path / "a.csv", [[name, 0, 0.1], ['say "a"\n.png', 1, 0.2]])
    assert real("merge", "all.csv", part).code == 0
    assert (tmp_path / "all.csv").read_bytes() == part.read_bytes()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_part_without_rows_adds_none(real, tmp_path, suffix):
    empty = write(tmp_path / f"none.{suffix}", [], ["image"])
    full = write(tmp_path / f"a.{suffix}", ROWS["a"])
    assert real("merge", f"all.{suffix}", empty, full).code == 0
    assert len(read(tmp_path / f"all.{suffix}")) == 2
    assert real("merge", f"nothing.{suffix}", empty).code == 0
    assert read(tmp_path / f"nothing.{suffix}") == []


def test_a_column_of_whole_numbers_joins_one_of_floats(real, tmp_path):
    parts = [
        write(tmp_path / "a.parquet", [["a.png", 1, 1]]),
        write(tmp_path / "b.parquet", [["b.png", 1, 0.5]]),
    ]
    assert real("merge", "all.parquet", *parts).code == 0
    assert read(tmp_path / "all.parquet") == [["a.png", 1, 1.0], ["b.png", 1, 0.5]]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("second", "columns", "reason"),
    [
        ([["a.png", 5, 1.5]], COLUMNS, "a.png is in a.{0} and again in b.{0}"),
        ([["b.png", 1]], COLUMNS[:2], "columns of b.{0} are not those of a.{0}: it lacks entropy"),
        ([["b.png", 1, 2]], ["image", "head", "x"], "it has x and it lacks entropy"),
        ([["b.png", 1, 2]], ["image", "entropy", "head"], "their order differs"),
        ([["b.png", 1, 2]], ["file", "head", "entropy"], "b.{0} has no column image"),
    ],
)
def test_parts_that_do_not_belong_together(real, tmp_path, suffix, second, columns, reason):
    write(tmp_path / f"a.{suffix}", ROWS["a"])
    write(tmp_path / f"b.{suffix}", second, columns)
    (tmp_path / f"all.{suffix}").write_bytes(b"what stood there")
    outcome = real("merge", f"all.{suffix}", f"a.{suffix}", f"b.{suffix}")
    assert outcome.code == 2
    assert outcome.out == ""
    assert reason.format(suffix) in outcome.err.splitlines()[0]
    assert (tmp_path / f"all.{suffix}").read_bytes() == b"what stood there"
    assert not list(tmp_path.glob(".attnviz-*"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("all.txt", "a.csv"), "all.txt ends neither in .csv nor in .parquet"),
        (("all.csv", "a.parquet"), "a.parquet is not a .csv file"),
        (("all.csv", "gone.csv"), "gone.csv does not exist"),
        (("all.csv", "a.csv", "./a.csv"), "a.csv is given twice"),
        (("a.csv", "a.csv"), "a.csv is also the table to write"),
        (("all.parquet", "text.parquet"), "text.parquet is not a Parquet file"),
        (("all.csv", "short.csv"), "short.csv is not a CSV table: line 2 has 1 values"),
    ],
)
def test_what_cannot_be_merged_is_told(real, tmp_path, arguments, reason):
    write(tmp_path / "a.csv", ROWS["a"])
    (tmp_path / "text.parquet").write_text("no")
    (tmp_path / "short.csv").write_text("image,head\na.png\n")
    outcome = real("merge", *arguments)
    assert outcome.code == 2
    assert reason in outcome.err.splitlines()[0]
    assert len(outcome.err.splitlines()) <= 2
