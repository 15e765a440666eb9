"""``attnviz faithful`` from the command line: its cost, its summary, and how it is drawn again."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from attnviz.cli.app import command_with_options
from attnviz.domain.kinds.faithful import DEVIATION_ROW
from attnviz.output.read_record import read_record
from attnviz.runs.mean_scores import RunningMean
from tests.helpers.photos import save_scene

SHOW = ("--show", "mean,head:-1", "--show", "contribution")


@pytest.fixture
def call(real, tmp_path, tiny_weights):
    for name in "abc":
        save_scene(tmp_path / "in" / f"{name}.png", 32, 40 + 8 * ord(name) % 24)

    def run(*arguments):
        weights = ("--checkpoint", str(tiny_weights), "--model-arg", "heads=2")
        return real("faithful", *arguments, *weights, "--dpi", "30", "--out", "o")

    return run


def test_the_cost_is_said_before_the_first_image(call):
    run = call("in/a.png", "--show", "mean")
    assert run.code == 0, run.err
    cost = "note: measuring 1 map takes up to 470 plain passes for each image"
    assert run.err.index(cost) < run.err.index("random orders")
    assert "up to" not in call("in/a.png", "--show", "mean", "--quiet").err


def test_a_figure_set_says_the_cost_of_each_of_its_figures(real, tmp_path, tiny_weights):
    save_scene(tmp_path / "a.png", 32, 40)
    figures = "".join(
        f'[[figure]]\ncommand = "{command}"\nimages = "a.png"\n{more}\n'
        for command, more in (
            ("heads", ""), ("faithful", 'show = "mean"'), ("faithful", "chefer = true\nout = 'p'"),
        )
    )  # fmt: skip
    defaults = f'[defaults]\ncheckpoint = "{tiny_weights}"\nmodel-arg = "heads=2"\nworkers = 0\n'
    (tmp_path / "set.toml").write_text(f"{defaults}dpi = 30\n{figures}", encoding="utf-8")
    run = real("render", "set.toml")
    assert run.code == 0, run.err
    costs = [line for line in run.err.splitlines() if "plain passes" in line]
    assert ["1 map takes up to 470" in costs[0], "3 maps takes up to 176" in costs[1]] == [True] * 2


def test_means_and_standard_errors_over_a_folder(call, tmp_path):
    run = call("in", *SHOW, "--summary", "--json")
    assert run.code == 0, run.err
    lines = [json.loads(line) for line in run.out.splitlines()]
    tables = [line["table"] for line in lines if line["status"] == "done"]
    with (tmp_path / "o" / "faithful.summary.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["map"] for row in rows] == ["mean", "head:1", "contribution", "random orders"]
    assert len(tables) == 3
    for index, row in enumerate(rows):
        assert row["images"] == "3"
        for name in ("deletion", "deletion_reversed", "insertion", "insertion_reversed", "saco"):
            values = [table[index][name] for table in tables]
            if None in values:
                assert (row[name], row[f"{name}_se"]) == ("", "")
                continue
            error = np.std(values, ddof=1) / np.sqrt(3)
            assert float(row[name]) == pytest.approx(np.mean(values))
            assert float(row[f"{name}_se"]) == pytest.approx(error, abs=1e-12)
    assert not any(row["map"] == DEVIATION_ROW for row in rows)
    record = read_record(tmp_path / "o" / "faithful.summary.png")
    assert record["beside"].keys() == {"csv"}
    assert record["options"]["show"] == ["mean", "head:-1", "contribution"]


def test_the_shell_is_offered_the_maps_that_can_be_measured():
    for command, known in (("faithful", "contribution"), ("compare", "k-norm")):
        (show,) = (p for p in command_with_options(command).params if p.name == "show")
        offered = [item.value for item in show.shell_complete(None, known[:4])]
        assert offered == [known]


def test_one_number_has_no_standard_error():
    one = RunningMean()
    one.add(0.25)
    assert (one.mean, one.standard_error) == (0.25, None)


def test_a_figure_is_drawn_again_by_the_command_of_its_record(call, real, tmp_path):
    assert call("in/a.png", *SHOW, "--baseline", "black", "--seed", "3").code == 0
    before = (tmp_path / "o" / "a.faithful.png").read_bytes()
    record = read_record(tmp_path / "o" / "a.faithful.png")
    assert {k: record["options"][k] for k in ("show", "baseline", "seed")} == {
        "show": ["mean", "head:-1", "contribution"], "baseline": "black", "seed": 3,
    }  # fmt: skip
    said = real("info", "o/a.faithful.png").out
    command = next(line for line in said.splitlines() if "attnviz faithful" in line)
    arguments = command[command.index("attnviz ") :].split()[1:]
    (tmp_path / "o" / "a.faithful.png").unlink()
    assert real(*arguments, "--out", "o").code == 0
    assert (tmp_path / "o" / "a.faithful.png").read_bytes() == before


def test_up_to_date_figures_are_skipped(call):
    assert call("in/a.png", *SHOW).code == 0
    assert "1 skipped" in call("in/a.png", *SHOW, "--skip-existing").err
    assert "1 of 1 done" in call("in/a.png", *SHOW, "--seed", "1", "--skip-existing").err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--show", "rolout"), "did you mean rollout?"),
        (("--show", "mean,,max"), "no map is called ''"),
        (("--chefer", "--baseline", "mean"), "--chefer paints cells black"),
        (("--class", "1"), "has no classifier"),
        (("--show", "head:2"), "head 2 does not exist"),
        (("--precision", "float16"), "relevance needs gradients"),
        (("--alpha", "0.5"), "--alpha has no effect"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(call, tmp_path, arguments, said):
    run = call("in/a.png", *arguments)
    assert (run.code, run.out) == (2, "")
    assert said in run.err
    assert "Traceback" not in run.err
    assert not (tmp_path / "o").exists()
