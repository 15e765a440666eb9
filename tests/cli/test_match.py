"""``attnviz match`` and ``discover`` on the command line: inputs, files, what is refused."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest

import attnviz
from tests.helpers.command_line import arrays, meta
from tests.helpers.photos import save_scene


@pytest.fixture
def images(tmp_path):
    for name, size in (("a.png", (40, 56)), ("b.png", (48, 32)), ("more/c.png", (40, 40))):
        save_scene(tmp_path / name, *size)
    return tmp_path


def test_two_images_are_one_and_its_second(real, tiny, images):
    run = real("match", "a.png", "b.png", *tiny, "--save-data", "--out", "o")
    assert run.code == 0, run.err
    assert run.out.split() == ["o/a.match.png", "o/a.match.npz"]
    again = real("match", "a.png", "--like", "b.png", *tiny, "--save-data", "--out", "p")
    assert again.code == 0, again.err
    for name in ("a.match.png", "a.match.npz"):
        assert (images / "o" / name).read_bytes() == (images / "p" / name).read_bytes()
    told = meta(images / "o" / "a.match.npz")
    assert told["options"]["like"] == "b.png"
    assert len(told["like_sha256"]) == 64


def test_the_numbers_are_those_of_the_python_interface(real, tiny, tiny_weights, images):
    options = ("--pairs", "3", "--part", "tokens", "--layer", "0", "--threshold", "0.9")
    assert real("match", "a.png", "b.png", *tiny, *options, "--save-data", "--csv").code == 0
    model = attnviz.load_model(checkpoint=tiny_weights, heads=2)
    maps = attnviz.match(
        model, attnviz.prepare(images / "a.png", model), like=images / "b.png", pairs=3,
        part="tokens", layer=0, threshold=0.9,
    )  # fmt: skip
    saved = arrays(images / "attnviz-out" / "a.match.npz")
    for name, values in maps.arrays().items():
        np.testing.assert_array_equal(saved[name], values, err_msg=name)
    with (images / "attnviz-out" / "a.match.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == len(maps.cells) > 0
    for row, own in zip(rows, maps.pair_rows(), strict=True):
        assert {name: float(value) for name, value in row.items()} == pytest.approx(own)


def test_a_folder_is_matched_with_the_last_input(real, tiny, images):
    run = real("match", "more", "a.png", "b.png", *tiny, "--json")
    assert run.code == 0, run.err
    records = [json.loads(line) for line in run.out.splitlines()]
    assert [record["image"] for record in records] == ["more/c.png", "a.png"]
    assert {record["options"]["like"] for record in records} == {"b.png"}


def test_another_second_image_is_another_figure(real, tiny, images):
    call = ("match", "a.png", "b.png", *tiny, "--skip-existing")
    assert real(*call).code == 0
    assert "1 skipped" in real(*call).err
    shutil.copy(images / "more" / "c.png", images / "b.png")
    assert "1 of 1 done" in real(*call).err


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("match", "a.png"), 2, "match needs two images"),
        (("match", "a.png", "gone.png"), 2, "gone.png is not a file"),
        (("match", "a.png", "more"), 2, "more is not a file"),
        (("match", "a.png", "b.png", "--pairs", "0"), 2, "--pairs: '0' is not a number of pairs"),
        (("match", "a.png", "b.png", "--pairs", "few"), 2, "--pairs: 'few'"),
        (("match", "a.png", "b.png", "--threshold", "1.5"), 2, "--threshold: 1.5"),
        (("match", "a.png", "b.png", "--layer", "7"), 2, "layer 7 does not exist"),
        (("match", "a.png", "b.png", "--at", "99,0"), 1, "cell 99,0 lies outside"),
        (("match", "a.png", "b.png", "--part", "q,k"), 2, "q,k"),
        (("match", "a.png", "b.png", "--cmap", "hot"), 2, "--cmap has no effect"),
        (("discover", "a.png", "--part", "q,k"), 2, "q,k"),
        (("discover", "a.png", "--method", "guess"), 2, "guess"),
        (("discover", "a.png", "--layer", "7"), 2, "layer 7 does not exist"),
        (("discover", "a.png", "--size", "8x8"), 1, "discover needs at least two patches"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(real, tiny, images, arguments, code, reason):
    run = real(*arguments, *tiny[:4], "--out", "o")
    assert (run.code, run.out) == (code, "")
    assert reason in run.err
    assert "Traceback" not in run.err
    assert not list(images.glob("o/a.*"))


def test_a_second_image_that_is_broken_stops_the_run(real, tiny, images):
    (images / "b.png").write_bytes(b"not an image")
    run = real("match", "a.png", "b.png", *tiny)
    assert run.code == 1
    assert "b.png" in run.err


def test_discover_saves_what_the_python_interface_gives(real, tiny, tiny_weights, images):
    model = attnviz.load_model(checkpoint=tiny_weights, heads=2)
    image = attnviz.prepare(images / "a.png", model)
    for method in ("lost", "tokencut", "spectral"):
        out = f"out-{method}"
        run = real("discover", "a.png", *tiny, "--method", method, "--save-data", "--out", out)
        assert run.code == 0, run.err
        saved = arrays(images / out / "a.discover.npz")
        maps = attnviz.discover(model, image, method=method)
        for name, values in maps.arrays().items():
            np.testing.assert_array_equal(saved[name], values, err_msg=name)
