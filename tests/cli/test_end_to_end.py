"""Whole runs with a tiny checkpoint: pictures in, figures and exact numbers out."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import attnviz
from attnviz.cli.app import main
from attnviz.output.read_record import read_record
from tests.helpers import kinds
from tests.helpers.command_line import arrays, assert_same_arrays, files_below, meta
from tests.helpers.photos import save_scene

ALL = ("1", "2", "10", "deep/er/3")
FORMATS = ("png", "pdf", "svg")


def pixels(path: Path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


@pytest.fixture(scope="module")
def model(tiny_weights):
    return attnviz.load_model(checkpoint=tiny_weights, heads=2)


# --- the kinds of figures -------------------------------------------------------------------------


OTHERS = tuple(name for name in kinds.BY_DEFAULT if name != "heads")
IN_ALL_FORMATS = pytest.mark.slow(reason="draws every kind in PDF and SVG too")


@pytest.mark.parametrize(
    ("command", "formats"),
    [
        ("heads", FORMATS),
        *((command, ("png",)) for command in OTHERS),
        *(pytest.param(command, FORMATS, marks=IN_ALL_FORMATS) for command in OTHERS),
    ],
)
def test_a_folder_gives_every_picture_in_every_format_with_its_data(
    real, tiny, photos, tmp_path, command, formats
):
    chosen = [word for name in formats for word in ("-f", name)]
    run = real(command, photos, *tiny, *chosen, "--save-data", "--out", "o")
    assert run.code == 0, run.err
    expected = [f"{stem}.{command}.{kind}" for stem in ALL for kind in ("npz", *formats)]
    # Further pages are in the PDF, and files of their own in the other formats.
    more = [name for name in files_below(tmp_path / "o") if name not in expected]
    assert all(re.fullmatch(rf".*\.{command}\.[2-9]\.(png|svg)", name) for name in more)
    expected += more
    assert files_below(tmp_path / "o") == sorted(expected)
    # Every file is named once on standard output, picture by picture in natural order.
    listed = run.out.splitlines()
    assert sorted(listed) == sorted(f"o/{name}" for name in expected)
    assert [line for line in listed if line.endswith(f".{command}.png")] == [
        f"o/{stem}.{command}.png" for stem in ALL
    ]
    assert run.err.splitlines()[-1] == "4 of 4 done"
    for name in expected:
        record = read_record(tmp_path / "o" / name)
        assert record is not None
        assert (record["command"], record["model"]) == (command, "tiny.pth")
    assert pixels(tmp_path / f"o/1.{command}.png").std() > 10
    if formats == FORMATS:
        assert (tmp_path / f"o/1.{command}.pdf").read_bytes().startswith(b"%PDF-")
        assert "<svg" in (tmp_path / f"o/1.{command}.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "options", "request_of_api"),
    [
        ("heads", ["--layer", "1"], {"layer": 1}),
        ("heads", ["--heads", "1", "--no-distance"], {"heads": (1,), "distance": False}),
        ("layers", ["--layers", "0,3"], {"layers": (0, 3)}),
        ("rollout", [], {}),
        (
            "rollout",
            ["--fusion", "max", "--discard-ratio", "0", "--layers-shown", "1"],
            {"fusion": "max", "discard_ratio": 0.0, "depths": (1,)},
        ),
        ("patch", ["--at", "1,2", "--xy", "70,47"], {"cells": ((1, 2),), "points": ((70, 47),)}),
        ("score", ["--keep-ratio", "0.25"], {"keep_ratio": 0.25}),
    ],
)
def test_saved_arrays_are_those_of_the_python_interface(
    real, tiny, photos, tmp_path, model, command, options, request_of_api
):
    picture = photos / "10.png"
    run = real(command, picture, *tiny, "--save-data", "--out", "o", *options)
    assert run.code == 0, run.err
    saved = arrays(tmp_path / f"o/10.{command}.npz")
    image = attnviz.prepare(picture, model)
    maps = getattr(attnviz, command)(model, image, **request_of_api)
    grid = (4, 6)
    assert (image.geometry.grid, saved["heads"].tolist()) == (grid, list(maps.heads))
    for name, values in saved.items():
        if name == "heads":
            continue
        held = {"at_depth_prefix": "at_depth_prefix"}.get(name, name)
        np.testing.assert_array_equal(values, np.asarray(getattr(maps, held)), err_msg=name)
    record = meta(tmp_path / f"o/10.{command}.npz")
    assert (record["size"], record["grid"], record["image_size"]) == ([32, 48], [4, 6], [48, 72])


def test_rows_of_data_files_sum_to_one_and_are_never_scaled(real, tiny, photos, tmp_path):
    real("layers", photos / "1.png", *tiny, "--save-data", "--out", "o", "--scale", "shared")
    found = arrays(tmp_path / "o/1.layers.npz")
    sums = found["prefix"].sum(axis=-1) + found["attention"].sum(axis=(-1, -2))
    np.testing.assert_allclose(sums, 1, atol=1e-5)


def test_overlays_have_the_pictures_own_size(real, tiny, photos, tmp_path):
    run = real("heads", photos / "10.png", *tiny, "--overlay", "--out", "o")
    assert run.code == 0, run.err
    assert files_below(tmp_path / "o") == [
        "10.heads.head0.png",
        "10.heads.head1.png",
        "10.heads.png",
    ]
    for head in (0, 1):
        assert pixels(tmp_path / f"o/10.heads.head{head}.png").shape == (48, 72, 3)


def test_the_table_of_scores(real, tiny, photos, tmp_path):
    run = real("score", photos / "10.png", *tiny, "--csv", "--save-data", "--out", "o")
    assert run.code == 0, run.err
    table = np.genfromtxt(tmp_path / "o/10.score.csv", delimiter=",", names=True)
    saved = arrays(tmp_path / "o/10.score.npz")
    np.testing.assert_array_equal(table["row"], np.repeat(range(4), 6))
    np.testing.assert_array_equal(table["column"], np.tile(range(6), 4))
    np.testing.assert_allclose(table["score"], saved["score"].ravel(), rtol=1e-6)
    np.testing.assert_array_equal(table["kept"], saved["kept"].ravel())


def test_numbers_for_one_picture_on_stderr_and_in_json(real, tiny, photos):
    run = real("heads", photos / "1.png", *tiny, "--json")
    (record,) = map(json.loads, run.out.splitlines())
    assert [row["head"] for row in record["table"]] == [0, 1]
    assert {"max", "mean", "entropy", "focus", "prefix_mass", "distance"} <= record["table"][
        0
    ].keys()
    for row in record["table"]:
        assert f"{row['entropy']:#.4g}" in run.err


# --- inputs ------------------------------------------------------------------------------------


def test_files_folders_globs_and_lists_in_one_run(real, tiny, photos, tmp_path, monkeypatch):
    save_scene(tmp_path / "alone.png", 32, 32)
    save_scene(tmp_path / "more" / "g1.png", 32, 32)
    save_scene(tmp_path / "more" / "g2.jpg", 32, 32)
    save_scene(tmp_path / "listed one.png", 32, 32)
    monkeypatch.setattr(
        sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"listed one.png\nalone.png\n"))
    )
    run = real("heads", "alone.png", "photos", "more/*.png", "-", *tiny, "--out", "o", "-q")
    assert (run.code, run.err) == (0, "")
    assert run.out.splitlines() == [
        f"o/{stem}.heads.png" for stem in ("alone", *ALL, "g1", "listed one")
    ]


def test_equal_stems_both_keep_their_suffix(real, tiny, tmp_path):
    for name in ("s1/cat.png", "s1/cat.jpg", "s2/cat.png"):
        save_scene(tmp_path / "in" / name, 32, 32)
    run = real("heads", "in", *tiny, "--out", "o")
    assert run.code == 0, run.err
    assert files_below(tmp_path / "o") == [
        "s1/cat.jpg.heads.png",
        "s1/cat.png.heads.png",
        "s2/cat.heads.png",
    ]


@pytest.mark.parametrize("out", ["photos/figures", "photos"])
def test_figures_inside_the_input_folder_are_no_pictures_of_the_next_run(
    real, tiny, photos, tmp_path, out
):
    first = real("heads", "photos", *tiny, "--overlay", "--out", out)
    count = files_below(tmp_path)
    second = real("heads", "photos", *tiny, "--overlay", "--out", out)
    assert (first.code, second.code) == (0, 0), second.err
    assert first.out == second.out
    assert files_below(tmp_path) == count
    assert len(first.out.splitlines()) == 4 * 3


# --- second runs -------------------------------------------------------------------------------


def test_skip_existing_leaves_what_is_current_and_makes_the_rest(real, tiny, photos, tmp_path):
    command = ("rollout", "photos", *tiny, "--out", "o", "--json", "--skip-existing")
    first = real(*command)
    figure = tmp_path / "o" / "2.rollout.png"
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "o").rglob("*.png")}
    save_scene(photos / "2.jpg", 40, 40, seed=1)
    (tmp_path / "o" / "10.rollout.png").unlink()
    second = real(*command)
    assert (first.code, second.code) == (0, 0)
    status = [json.loads(line)["status"] for line in second.out.splitlines()]
    images = [Path(json.loads(line)["image"]).name for line in second.out.splitlines()]
    assert dict(zip(images, status, strict=True)) == {
        "1.png": "skipped", "2.jpg": "done", "10.png": "done", "3.png": "skipped"
    }  # fmt: skip
    assert second.err.splitlines()[-1] == "2 of 4 done, 2 skipped"
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "o").rglob("*.png")}
    assert [path.name for path in before if before[path] == after.get(path)] == [
        path.name for path in before if path.name not in ("2.rollout.png", "10.rollout.png")
    ]
    assert figure in after


@pytest.mark.parametrize("change", [["--discard-ratio", "0.5"], ["--cmap", "hot"], ["--dpi", "31"]])
def test_other_options_are_other_work(real, tiny, photos, change):
    command = ("rollout", photos / "1.png", *tiny, "--skip-existing", "--json")
    real(*command)
    assert json.loads(real(*command).out)["status"] == "skipped"
    assert json.loads(real(*command, *change).out)["status"] == "done"


def test_other_weights_are_other_work(real, tiny, photos, tmp_path):
    from tests.helpers import checkpoints

    other = checkpoints.save(tmp_path / "tiny.pth", checkpoints.original(seed=1))
    command = ("heads", photos / "1.png", *tiny, "--skip-existing", "--json")
    first = json.loads(real(*command).out)
    second = json.loads(real(*command, "--checkpoint", other).out)
    assert second["status"] == "done"
    assert (first["weights"], second["weights"]) == ("tiny.pth", "tiny.pth")
    assert first["weights_sha256"] != second["weights_sha256"]
    assert first["table"] != second["table"]


def test_without_skip_existing_figures_are_made_again_with_the_same_bytes(
    real, tiny, photos, tmp_path
):
    command = ("score", photos / "1.png", *tiny, "--out", "o", "-f", "png", "-f", "svg")
    real(*command)
    before = {path: path.read_bytes() for path in (tmp_path / "o").iterdir()}
    for path in before:
        path.write_bytes(b"old")
    assert real(*command, "--overwrite").code == 0
    assert {path: path.read_bytes() for path in (tmp_path / "o").iterdir()} == before


# --- what must not matter ----------------------------------------------------------------------


@pytest.mark.parametrize("command", kinds.BY_DEFAULT)
def test_maps_depend_neither_on_the_batch_nor_on_its_other_pictures(
    real, tiny, photos, tmp_path, command
):
    whole = ("--discard-ratio", "0") if command == "rollout" else ()
    for size in ("1", "3"):
        run = real(
            command, photos, *tiny, *whole, "--save-data", "--out", size, "--batch-size", size
        )
        assert run.code == 0, run.err
    for stem in ALL:
        one, three = (arrays(tmp_path / size / f"{stem}.{command}.npz") for size in ("1", "3"))
        within = dict.fromkeys(one, 1e-06) | {
            "entropy": 1e-5,
            "token_entropy": 1e-5,
            "distance": 1e-4,
        }
        for name in one:
            assert_same_arrays({name: one[name]}, {name: three[name]}, within[name])


def test_drawing_processes_change_no_byte(real, tiny, photos, tmp_path):
    for workers in ("0", "2"):
        run = real(
            "heads", photos, *tiny, "--save-data", "-f", "png", "-f", "pdf", "-f", "svg",
            "--workers", workers, "--out", f"w{workers}",
        )  # fmt: skip
        assert run.code == 0, run.err
    names = files_below(tmp_path / "w0")
    assert names == files_below(tmp_path / "w2")
    for name in names:
        assert (tmp_path / "w0" / name).read_bytes() == (tmp_path / "w2" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("command", "one", "other"),
    [
        ("heads", ["--layer", "-1"], ["--layer", "3"]),
        ("heads", ["--layer=-1"], ["--layer=3"]),
        ("heads", ["--heads", "-1"], ["--heads", "1"]),
        ("patch", ["--layer", "-4"], ["--layer", "0"]),
        ("score", ["--layer", "-2"], ["--layer", "2"]),
        ("layers", ["--layers", "-2,-1"], ["--layers", "2", "3"]),
        ("layers", ["--layers", "-2--1"], ["--layers", "2-3"]),
        ("rollout", ["--start-layer", "-1"], ["--start-layer", "3"]),
    ],
)
def test_counting_from_the_end(real, tiny, photos, tmp_path, command, one, other):
    for out, options in (("one", one), ("other", other)):
        run = real(
            command, photos / "1.png", *tiny, *options, "--save-data", "--out", out, "-f", "svg"
        )
        assert run.code == 0, run.err
    assert_same_arrays(*(arrays(tmp_path / out / f"1.{command}.npz") for out in ("one", "other")))
    # The figure speaks of the layer that is shown, never of "layer -1".
    drawn = [
        (tmp_path / out / f"1.{command}.svg").read_text(encoding="utf-8").split("</metadata>")[1]
        for out in ("one", "other")
    ]
    assert drawn[0] == drawn[1]
    assert "layer -" not in drawn[0].lower()


def test_layer_minus_1_is_layer_11_of_12(real, tiny, photos, tmp_path):
    options = ("--random-weights", "--model", "vit_tiny_patch16_224", "--model-arg", "width=24",
               "--model-arg", "heads=3", "--size", "48", "--save-data", "--dpi", "30")  # fmt: skip
    for layer in ("-1", "11"):
        run = real("heads", photos / "1.png", *options, "--layer", layer, "--out", layer)
        assert run.code == 0, run.err
    minus, eleven = (arrays(tmp_path / layer / "1.heads.npz") for layer in ("-1", "11"))
    assert eleven["layer"] == 11
    assert_same_arrays(minus, eleven)


def test_random_weights_are_marked_in_every_file(real, photos, tmp_path):
    run = real(
        "heads", photos / "1.png", "--random-weights", "--model", "dino_vits16", "--model-arg",
        "depth=2", "--model-arg", "width=48", "--model-arg", "heads=3", "-f", "svg", "--save-data",
        "--out", "o", "--json",
    )  # fmt: skip
    assert run.code == 0, run.err
    assert json.loads(run.out)["random_weights"] is True
    assert "random weights" in (tmp_path / "o/1.heads.svg").read_text(encoding="utf-8")
    assert meta(tmp_path / "o/1.heads.npz")["random_weights"] is True


# --- records -----------------------------------------------------------------------------------


def test_json_gives_one_record_a_picture(real, tiny, photos, tmp_path):
    (photos / "4.png").write_text("no picture")
    run = real("layers", "photos", "none.png", *tiny, "--json", "--save-data", "--out", "o")
    assert run.code == 1
    records = [json.loads(line) for line in run.out.splitlines()]
    by_name = {Path(record["image"]).name: record for record in records}
    assert len(by_name) == len(records) == 6
    assert {name: record["status"] for name, record in by_name.items()} == {
        "1.png": "done", "2.jpg": "done", "10.png": "done", "3.png": "done",
        "4.png": "failed", "none.png": "failed",
    }  # fmt: skip
    done = by_name["10.png"]
    assert [(file["kind"], Path(file["path"]).name) for file in done["files"]] == [
        ("figure", "10.layers.png"),
        ("data", "10.layers.npz"),
    ]
    assert all((tmp_path / file["path"]).is_file() for file in done["files"])
    assert (done["size"], done["grid"], done["prefix"]) == ([32, 48], [4, 6], 1)
    assert len(done["table"]) == 4 * 2
    assert done["versions"].keys() >= {"attnviz", "torch", "timm"}
    assert by_name["4.png"]["kind"] == "ImageError"
    # What is in the record is in the files: the same facts travel with each of them.
    inside = read_record(tmp_path / "o" / "10.layers.png")
    assert inside is not None
    assert {name: done[name] for name in inside} == inside


def test_verify_says_what_it_found(real, tiny, photos):
    run = real("heads", photos / "1.png", *tiny, "--verify")
    assert run.code == 0
    assert "verified" in run.err


def test_configuration_files_choose_options(real, tiny, photos, tmp_path):
    (tmp_path / "set.toml").write_text('format = ["svg"]\nout = "from-config"\nlayer = "1"\n')
    run = real("heads", photos / "1.png", *tiny, "--config", "set.toml", "--save-data")
    assert run.code == 0, run.err
    assert arrays(tmp_path / "from-config" / "1.heads.npz")["layer"] == 1


def test_the_input_is_only_read(real, tiny, photos):
    before = {path: path.read_bytes() for path in photos.rglob("*") if path.is_file()}
    for command in kinds.BY_DEFAULT:
        assert real(command, photos, *tiny, "-q").code == 0
    assert {path: path.read_bytes() for path in photos.rglob("*") if path.is_file()} == before


def test_main_is_what_runs(photos, tiny, tmp_path):
    """The helper of these tests adds nothing to the console script's entry."""
    arguments = ["heads", str(photos / "1.png"), *tiny, "--out", os.fspath(tmp_path / "o"), "-q"]
    assert main(arguments) == 0
    assert files_below(tmp_path / "o") == ["1.heads.png"]
