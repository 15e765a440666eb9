"""What the benchmarks write: tables, their block of a page, and the batches of a device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import batches, machine
from benchmarks.report import BATCHES, MAIN, Plan, table, write_block

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def test_a_block_is_replaced_and_nothing_else(tmp_path):
    page = tmp_path / "page.md"
    other = "<!-- b: begin -->\nkept\n<!-- b: end -->\n"
    page.write_text(f"before\n<!-- a: begin -->\nold\n<!-- a: end -->\n{other}")
    write_block(page, "a", "new\n\nlines")
    expected = f"before\n<!-- a: begin -->\nnew\n\nlines\n<!-- a: end -->\n{other}"
    assert page.read_text() == expected
    with pytest.raises(ValueError, match=r"has no <!-- c: begin -->"):
        write_block(page, "c", "new")


@pytest.mark.parametrize("block", [MAIN, BATCHES])
def test_the_page_has_a_block_for_every_run(block, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    write_block(page, block, "numbers")
    assert "\nnumbers\n" in page.read_text(encoding="utf-8")


def test_a_table_has_a_row_for_every_name():
    assert table("time", ["224 px", "480 px"], {"heads": ["1.00", "2.00"]}) == (
        "| time | 224 px | 480 px |\n| --- | ---: | ---: |\n| heads | 1.00 | 2.00 |"
    )


def test_the_cpu_is_named_with_its_caches(tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n")
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    assert machine.cpu_name() == "Some CPU @ 2 GHz"
    assert machine.describe(torch.device("cpu")).startswith("Some CPU @ 2 GHz (")
    assert "threads" in machine.describe(torch.device("cpu"))


def test_batches_run_on_the_cpu_as_they_do_on_a_gpu():
    """The real model on 2 x 2 patches: what is tested is that every cell is filled."""
    plan = Plan((16,), Path(), quick=True, batches=(1, 2), precisions=("float32", "bfloat16"))
    text = batches.report(plan)
    lines = text.splitlines()
    columns = "float32, 1 | float32, 2 | bfloat16, 1 | bfloat16, 2"
    assert lines[0] == f"| time / plain at 16 px | {columns} |"
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("|")}
    assert rows.keys() >= {"plain forward pass", *batches.REQUESTS}
    for name in batches.REQUESTS:
        assert re.fullmatch(r"\| [^|]+( \| \d+\.\d\d){4} \|", rows[name]), rows[name]
    (deviations,) = re.findall(r"maximum: layers ([\d.]+), rollout, no discard ([\d.]+)", text)
    assert all(0 < float(number) < 1e-2 for number in deviations)


@pytest.mark.parametrize(
    ("arguments", "known"),
    [(["--parts", "batches"], "forward"), (["--device", "cpu", "--parts", "forward"], "batches")],
)
def test_an_unknown_part_names_those_there_are(arguments, known, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmarks", *arguments])
    with pytest.raises(SystemExit) as caught:
        command.main()
    assert caught.value.code == 2
    assert known in capsys.readouterr().err
