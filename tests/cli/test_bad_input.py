"""Pictures, options and outputs that cannot be used: one clear line each, and the rest goes on.

Exit codes: 0 all done, 1 some picture or the work failed, 2 wrong use. A line names the file or
the option; a hint may follow, indented. Nothing is written for what failed, and never a traceback.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image, ImageFile

from tests.helpers import kinds
from tests.helpers.command_line import files_below
from tests.helpers.photos import save_scene
from tests.helpers.pictures import png_header_only


def errors(run) -> list[str]:
    """The error lines of a run, without hints; anything else on stderr is a test's failure."""
    assert "Traceback" not in run.err
    lines = run.err.splitlines()
    found = [line for line in lines if line.startswith(("error: ", "failed: "))]
    rest = [line for line in lines if line not in found and not line.startswith("  ")]
    assert all(line.startswith(("note: ", "skipped ")) or " done" in line for line in rest), rest
    return found


def the_error(run) -> str:
    """The one error line of a run."""
    (line,) = errors(run)
    return line


@pytest.fixture
def no_model(monkeypatch):
    """The error must come before the model loads."""

    def load(_request):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("attnviz.models.load.load_backbone", load)


@pytest.fixture
def photo(tmp_path):
    return save_scene(tmp_path / "photo.png", 40, 40)


# --- pictures ----------------------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path):
    """Three good pictures and every kind of bad one."""
    folder = tmp_path / "mixed"
    for name in ("1.png", "2.png", "10.jpg"):
        save_scene(folder / name, 40, 40)
    jpeg = save_scene(tmp_path / "whole.jpg", 400, 400).read_bytes()
    (folder / "cut-50.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    (folder / "cut-98.jpg").write_bytes(jpeg[: len(jpeg) * 98 // 100])
    (folder / "empty.png").touch()
    (folder / "text.jpg").write_text("this is no picture\n")
    (folder / "bomb.png").write_bytes(png_header_only(60_000, 60_000))
    for junk in (".DS_Store", "Thumbs.db", "._1.png", "notes.txt"):
        (folder / junk).write_bytes(b"junk")
    (folder / "folder.jpg").mkdir()
    return folder


@pytest.mark.parametrize("workers", ["0", "1"])
def test_bad_pictures_are_named_and_the_others_done(real, tiny, mixed, tmp_path, workers):
    limit = Image.MAX_IMAGE_PIXELS
    run = real(
        "heads", mixed, "missing.png", *tiny, "--out", "o", "--save-data", "--workers", workers
    )
    assert run.code == 1
    failed = errors(run)
    assert len(failed) == 6
    for name, reason in {
        "cut-50.jpg": "truncated", "cut-98.jpg": "truncated", "empty.png": "empty (0 bytes)",
        "text.jpg": "no", "bomb.png": "pixels", "missing.png": "does not exist",
    }.items():  # fmt: skip
        (line,) = (line for line in failed if name in line)
        assert reason in line, line
    assert run.err.splitlines()[-1] == "3 of 9 done, 6 failed"
    assert files_below(tmp_path / "o") == sorted(
        [f"{stem}.heads.{kind}" for stem in ("1", "2", "10") for kind in ("npz", "png")]
        + ["failures.csv"]
    )
    with (tmp_path / "o" / "failures.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [list(row) for row in rows] == [["image", "reason", "hint"]] * 6
    assert all(any(row["reason"] in line for line in failed) for row in rows)
    assert sorted(Path(row["image"]).name for row in rows) == sorted(
        ["cut-50.jpg", "cut-98.jpg", "empty.png", "text.jpg", "bomb.png", "missing.png"]
    )
    assert len(run.out.splitlines()) == 6
    # Junk costs one line, not one each, and is no failure.
    (skipped,) = (line for line in run.err.splitlines() if line.startswith("skipped"))
    assert skipped.startswith("skipped 4 files: ")
    assert not ImageFile.LOAD_TRUNCATED_IMAGES
    assert limit == Image.MAX_IMAGE_PIXELS


def test_junk_alone_is_no_failure(real, tiny, tmp_path):
    save_scene(tmp_path / "in" / "a.png", 32, 32)
    (tmp_path / "in" / "notes.txt").write_text("text")
    assert real("heads", "in", *tiny).code == 0


def test_fail_fast_stops_at_the_first(real, tiny, mixed, tmp_path):
    for name in ("cut-50.jpg", "cut-98.jpg", "bomb.png"):
        (mixed / name).unlink()
    run = real("heads", mixed / "1.png", mixed / "empty.png", mixed / "2.png", *tiny,
               "--fail-fast", "--batch-size", "1", "--workers", "0", "--out", "o")  # fmt: skip
    assert run.code == 1
    assert "empty.png" in the_error(run)
    assert files_below(tmp_path / "o") in (["failures.csv"], ["1.heads.png", "failures.csv"])


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("missing.jpg", "missing.jpg does not exist"),
        ("nowhere/", "nowhere does not exist"),
        ("empty-folder", "empty-folder holds no images"),
        ("*.tif", "*.tif does not exist, and as a glob matches nothing"),
        ("-", "standard input lists no paths"),
        ("", "'' is an empty name"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_inputs_that_give_nothing_end_the_run_before_the_model_loads(
    real, tmp_path, monkeypatch, written, reason
):
    (tmp_path / "empty-folder").mkdir()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    run = real("heads", written, "--out", "o")
    assert run.code == 1
    assert the_error(run).replace("/ ", " ").startswith(f"failed: {reason}")
    assert run.out == ""
    assert files_below(tmp_path / "o") == []


def test_a_missing_input_among_good_ones(real, tiny, photo):
    run = real("score", "gone.png", photo, *tiny)
    assert run.code == 1
    assert "gone.png does not exist" in the_error(run)
    assert len(run.out.splitlines()) == 1


def test_points_and_cells_outside_a_picture_cost_that_picture(real, tiny, tmp_path):
    for name, width in (("narrow.png", 32), ("wide.png", 96)):
        save_scene(tmp_path / "in" / name, 32, width)
    run = real("patch", "in", *tiny, "--xy", "90,5", "--out", "o")
    assert run.code == 1
    assert "narrow.png" in the_error(run)
    assert "x=90, y=5 lies outside" in the_error(run)
    assert files_below(tmp_path / "o") == ["failures.csv", "wide.patch.png"]
    run = real("patch", "in", *tiny, "--at", "0,7", "--out", "o2", "--batch-size", "2")
    assert "grid of 4 rows and 4 columns" in the_error(run)
    assert files_below(tmp_path / "o2") == ["failures.csv", "wide.patch.png"]


@pytest.mark.parametrize("cell", ["-1,0", "0,-1", "-4,-4"])
@pytest.mark.parametrize("command", ["patch", "features"])
def test_cells_count_from_zero_and_not_from_the_end(real, tiny, photo, command, cell):
    run = real(command, photo, *tiny, f"--at={cell}")
    assert run.code == 1
    assert f"cell {cell} lies outside the grid" in the_error(run)
    assert "rows run from 0 to " in run.err
    assert ", columns from 0 to " in run.err


def test_cells_of_a_comparison_count_from_zero_too(real, tiny, photo):
    run = real("compare", photo, *tiny, "--show", "mean,patch@-1,0")
    assert run.code == 0  # the other panels are drawn, and this one says why it is empty
    assert "photo.png: patch@-1,0: cell -1,0 lies outside the grid" in run.err


# --- layers and heads --------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["4", "-5", "99", "-99"])
@pytest.mark.parametrize("option", ["--layer", "--start-layer", "--layers", "--layers-shown"])
def test_a_layer_out_of_range_states_the_range(real, tiny, photo, option, text):
    command = {"--layer": "heads", "--layers": "layers"}.get(option, "rollout")
    run = real(command, photo, *tiny, option, text)
    assert run.code == 2
    assert "layer" in the_error(run)
    assert text in the_error(run)
    assert "0 to 3" in run.err
    assert "--out" not in run.err


@pytest.mark.parametrize("text", ["2", "-3", "0,5"])
@pytest.mark.parametrize("command", kinds.OF_HEADS)
def test_a_head_out_of_range_states_the_range(real, tiny, photo, command, text):
    run = real(command, photo, *tiny, "--heads", text)
    assert run.code == 2
    assert "head" in the_error(run)
    assert "0 to 1" in run.err


@pytest.mark.parametrize("text", ["a", "", "1.5", "0x1", "--"])
@pytest.mark.parametrize("option", ["--layer", "--heads"])
@pytest.mark.usefixtures("no_model")
def test_what_is_no_number_is_told_before_the_model_loads(real, photo, option, text):
    run = real("heads", photo, f"{option}={text}")
    assert run.code == 2
    assert option in the_error(run)
    assert "count from 0; -1 is the last" in run.err


@pytest.mark.parametrize(
    ("command", "option", "text"),
    [
        ("rollout", "--discard-ratio", "1"),
        ("rollout", "--discard-ratio", "1.5"),
        ("rollout", "--discard-ratio", "-0.1"),
        ("rollout", "--discard-ratio", "nan"),
        ("rollout", "--residual", "1"),
        ("rollout", "--fusion", "median"),
        ("score", "--keep-ratio", "0"),
        ("score", "--keep-ratio", "0.9,0.5"),
        ("score", "--keep-ratio", "0.9,"),
        ("heads", "--query", "pool"),
        ("heads", "--query", "r1"),
        ("layers", "--query", "registers"),
        ("patch", "--direction", "across"),
        ("heads", "--threshold", "2"),
        ("heads", "--size", "big"),
        ("heads", "--device", "tpu"),
        ("heads", "--cmap", "infreno"),
        ("heads", "--format", "gif"),
        ("heads", "--batch-size", "0"),
        ("heads", "--workers", "-1"),
        ("heads", "--model-arg", "depth"),
        ("heads", "--precision", "int8"),
        ("patch", "--at", "3"),
        ("patch", "--xy", "a,b"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_values_that_no_model_could_honour(real, photo, tmp_path, command, option, text):
    run = real(command, photo, f"{option}={text}", "--out", "o")
    assert (run.code, run.out) == (2, "")
    assert option in the_error(run)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("fusion", ["median"])
def test_the_known_ways_to_join_heads_are_listed(real, photo, fusion):
    run = real("rollout", photo, "--fusion", fusion)
    assert all(name in run.err for name in ("mean", "max", "min"))


# --- output ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_model")
def test_an_output_folder_that_is_a_file(real, photo, tmp_path):
    (tmp_path / "taken").write_text("mine")
    for out in ("taken", "taken/deeper"):
        run = real("heads", photo, "--out", out)
        assert run.code == 2
        assert the_error(run).startswith(f"error: --out: {out} ")
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a place where nothing can be made")
@pytest.mark.usefixtures("no_model")
def test_an_output_folder_that_cannot_be_made(real, photo):
    run = real("heads", photo, "--out", "/proc/attnviz")
    assert run.code == 2
    assert "/proc/attnviz cannot be written" in the_error(run)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.usefixtures("no_model")
def test_an_output_folder_without_permission(real, photo, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o555)
    run = real("heads", photo, "--out", "locked")
    assert run.code == 2
    assert "locked cannot be written" in the_error(run)


@pytest.mark.usefixtures("no_model")
def test_a_figure_never_takes_the_place_of_a_picture(real, tmp_path):
    picture = save_scene(tmp_path / "a.heads.png", 32, 32)
    save_scene(tmp_path / "a.png", 32, 32)
    before = picture.read_bytes()
    run = real("heads", "a.png", "a.heads.png", "--out", ".")
    assert run.code == 2
    assert "a.heads.png" in the_error(run)
    assert picture.read_bytes() == before


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_file_that_cannot_be_written_costs_its_picture(real, tiny, tmp_path, workers):
    for name in ("a.png", "b.png"):
        save_scene(tmp_path / "in" / name, 32, 32)
    (tmp_path / "o" / "a.heads.png").mkdir(parents=True)
    run = real("heads", "in", *tiny, "--out", "o", "--workers", workers)
    assert run.code == 1
    assert "a.heads.png" in the_error(run)
    assert run.err.splitlines()[-1] == "1 of 2 done, 1 failed"
    assert files_below(tmp_path / "o") == ["b.heads.png", "failures.csv"]


def test_a_picture_too_large_for_the_memory_costs_itself(real, tiny, photo, tmp_path, monkeypatch):
    monkeypatch.setattr("attnviz.attention.memory.free_bytes", lambda _device: 3e6)
    large = save_scene(tmp_path / "large.png", 800, 800)
    run = real("rollout", large, photo, *tiny, "--size", "original", "--out", "o")
    assert run.code == 1
    assert "800x800" in the_error(run)
    assert "large.png" in the_error(run)
    assert "the largest square that fits is about --size " in run.err
    assert files_below(tmp_path / "o") == ["failures.csv", "photo.rollout.png"]


def test_messages_stay_off_stdout(real, tiny, mixed):
    run = real("heads", mixed, *tiny, "--out", "o")
    assert all(line.startswith("o") and line.endswith(".png") for line in run.out.splitlines())


def test_quiet_still_reports_failures(real, tiny, mixed):
    run = real("heads", mixed, *tiny, "--quiet")
    assert run.code == 1
    assert len(errors(run)) == 5
    assert run.err.splitlines()[-1] == "3 of 8 done, 5 failed"
