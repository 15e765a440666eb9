"""``--shard I/N``: parts that share nothing and leave nothing out."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.domain import Shard
from tests.helpers.command_line import files_below


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(min_size=1), max_size=30), st.integers(1, 12))
def test_every_path_belongs_to_one_shard(paths, count):
    shards = [Shard(index, count) for index in range(count)]
    for path in paths:
        assert sum(shard.holds(path) for shard in shards) == 1


def test_the_shard_of_a_path_is_the_same_for_ever():
    """Jobs of other machines, Python versions and years must agree."""
    # By b2sum -l 64: 2bac54f5dad364a9, e203797de73bf656, f1ae4c1e0447328e.
    names = {"photos/cat.jpg": 1, "a.png": 2, "\u00fc.png": 2}
    for name, index in names.items():
        assert [n for n in range(4) if Shard(n, 4).holds(name)] == [index]
    assert Shard(0, 1).holds("anything")
    assert Shard(1, 4).holds(Path("photos") / "cat.jpg") == Shard(1, 4).holds("photos/cat.jpg")


def test_shards_are_about_equally_large():
    sizes = [sum(Shard(n, 8).holds(f"photos/{i:06}.jpg") for i in range(8000)) for n in range(8)]
    assert sum(sizes) == 8000
    assert 850 < min(sizes) <= max(sizes) < 1150


def test_the_shards_of_a_run_are_the_run(real, tiny, photos, tmp_path):
    """Names as well: where two pictures meet in one, their shards know of each other."""
    (photos / "1.jpg").write_bytes((photos / "2.jpg").read_bytes())
    command = ("heads", "photos", "photos/gone.png", *tiny, "--workers", "0")
    whole = real(*command, "--out", "whole")
    assert whole.code == 1
    codes, failed = [], 0
    for index in range(3):
        outcome = real(*command, "--out", "parts", "--shard", f"{index}/3")
        codes.append(outcome.code)
        failed += outcome.err.count("failed: ")
    assert failed == 1
    assert sorted(set(codes)) in ([0, 1], [1])
    names, parts = (
        [name for name in files_below(tmp_path / folder) if not name.startswith("failures.")]
        for folder in ("whole", "parts")
    )
    assert names == parts
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_a_shard_without_pictures_is_no_failure(real, tiny, photos):
    outcomes = [
        real("heads", "photos/1.png", *tiny, "--workers", "0", "--shard", f"{index}/2")
        for index in range(2)
    ]
    assert [outcome.code for outcome in outcomes] == [0, 0]
    assert sorted(outcome.out for outcome in outcomes) == ["", "attnviz-out/1.heads.png\n"]
    assert sum("no image belongs to this shard" in outcome.err for outcome in outcomes) == 1


def test_shards_write_lists_of_their_own_that_can_be_merged(real, tiny, photos, tmp_path):
    inputs = [f"photos/gone{number}.png" for number in range(6)]
    command = ("heads", "photos", *inputs, *tiny, "--workers", "0", "--out", "o", "--shard")
    for index in range(2):
        assert real(*command, f"{index}/2", "--table", f"part-{index}.csv").code == 1
    lists = sorted((tmp_path / "o").glob("failures*"))
    assert [path.name for path in lists] == ["failures.0-of-2.csv", "failures.1-of-2.csv"]
    assert real("merge", "failed.csv", *lists).code == 0
    with (tmp_path / "failed.csv").open(newline="", encoding="utf-8") as stream:
        assert sorted(row["image"] for row in csv.DictReader(stream)) == inputs
    assert real("merge", "all.csv", "part-0.csv", "part-1.csv").code == 0
    real("heads", "photos", *tiny, "--workers", "0", "--out", "p", "--table", "whole.csv")
    joined, whole = (tmp_path / "all.csv", tmp_path / "whole.csv")
    assert sorted(joined.read_text().splitlines()) == sorted(whole.read_text().splitlines())


def test_a_summary_is_of_all_pictures(attnviz_command):
    outcome = attnviz_command("heads", "a.jpg", "--summary", "--shard", "0/2")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: --summary is of all images, and --shard takes a part")


@pytest.mark.parametrize("option", [("--engine", "ray"), ("--shard", "0/2")])
def test_commands_of_one_figure_run_on_one_machine(attnviz_command, option):
    outcome = attnviz_command("compare", "a.jpg", *option)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"error: No such option: {option[0]}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("8/8", "--shard: there is not a shard 8 of 8"),
        ("0/0", "--shard: there is not a shard 0 of 0"),
        ("-1/8", "--shard: '-1/8' is not a shard"),
        ("1", "--shard: '1' is not a shard"),
        ("1/", "--shard: '1/' is not a shard"),
        ("a/b", "--shard: 'a/b' is not a shard"),
    ],
)
def test_a_shard_that_does_not_exist_is_told(attnviz_command, pipeline, text, reason):
    outcome = attnviz_command("heads", "a.jpg", "--shard", text)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {reason}")
    assert not pipeline.requests


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--ray-address", "a:1"), "--ray-address needs --engine ray"),
        (("--cpus-per-model", "2"), "--cpus-per-model needs --engine ray"),
        (("--engine", "ray", "--workers", "2"), "--workers counts the processes of this machine"),
        (("--engine", "ray", "--device", "cuda:1"), "--device cuda:1: Ray gives every model"),
        (("--engine", "ray", "--cpus-per-model", "0"), "--cpus-per-model: '0' is neither"),
    ],
)
def test_options_of_the_other_engine_are_refused(attnviz_command, pipeline, arguments, reason):
    outcome = attnviz_command("heads", "a.jpg", *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {reason}")
    assert not pipeline.requests


def test_without_ray_the_command_says_how_to_get_it(real, tiny, photos, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    outcome = real("heads", "photos/1.png", *tiny, "--engine", "ray")
    assert outcome.code == 2
    assert outcome.err.splitlines()[-2:] == [
        "error: --engine ray needs Ray Data, which is not installed (ray)",
        "  pip install 'attnviz[ray]'",
    ]
