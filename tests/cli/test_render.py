"""``attnviz render``: figure sets drawn with a tiny checkpoint."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from attnviz.models import load
from attnviz.output import rasterise
from attnviz.output.read_record import read_record
from tests.helpers.command_line import attnviz, files_below
from tests.helpers.photos import save_scene

SET = """
[defaults]
checkpoint = "tiny.pth"
model-arg = "heads=2"
dpi = 30
width = "column"
out = "../figures"
workers = 0

[[figure]]
command = "heads"
images = ["../photos/a.png"]
threshold = 0.6

[[figure]]
command = "rollout"
images = ["../photos/a.png", "../photos/b.png"]
format = ["png", "pdf", "svg"]
save-data = true

[[figure]]
command = "score"
name = "third"
images = "../photos/b.png"
csv = true
"""
FILES = [
    "a.heads.png",
    *(f"{stem}.rollout.{kind}" for stem in "ab" for kind in ("npz", "pdf", "png", "svg")),
    "third.score.csv",
    "third.score.png",
]


@pytest.fixture
def figure_set(tmp_path, tiny_weights) -> Path:
    """A set of three figures over two pictures in sets/all.toml; runs start above it."""
    return write_set(tmp_path, tiny_weights)


def write_set(folder: Path, weights: Path) -> Path:
    save_scene(folder / "photos" / "a.png", 40, 40)
    save_scene(folder / "photos" / "b.png", 40, 48)
    path = folder / "sets" / "all.toml"
    path.parent.mkdir()
    shutil.copy(weights, path.parent / "tiny.pth")
    path.write_text(SET)
    return path


@pytest.fixture(scope="module")
def drawn_once(tmp_path_factory, tiny_weights) -> Path:
    """The folder of the figures of the set, drawn for all tests that begin with them."""
    folder = tmp_path_factory.mktemp("drawn")
    write_set(folder, tiny_weights)
    with contextlib.chdir(folder):
        assert attnviz("render", "sets/all.toml", "--quiet") == 0
    return folder / "figures"


@pytest.fixture
def drawn_set(figure_set, drawn_once, tmp_path) -> Path:
    """``figure_set`` with its figures already drawn, to figures/."""
    shutil.copytree(drawn_once, tmp_path / "figures")
    return figure_set


@pytest.fixture
def loads(monkeypatch):
    """The model requests that were loaded."""
    seen = []
    genuine = load.load_backbone
    monkeypatch.setattr(
        load, "load_backbone", lambda request: seen.append(request) or genuine(request)
    )
    return seen


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def listed(real) -> dict[str, str]:
    run = real("render", "sets/all.toml", "--list")
    assert run.code == 0, run.err
    lines = [line.split() for line in run.out.splitlines()]
    return {Path(path).name: status for status, path in lines}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_set_is_drawn_with_one_load_a_model(real, figure_set, loads, tmp_path, workers):
    edit(figure_set, "workers = 0", f"workers = {workers}")
    run = real("render", "sets/all.toml")
    assert run.code == 0, run.err
    assert files_below(tmp_path / "figures") == FILES
    assert sorted(run.out.splitlines()) == sorted(f"figures/{name}" for name in FILES)
    assert run.err.splitlines()[-1] == "4 of 4 done"
    assert len(loads) == 1
    record = read_record(tmp_path / "figures/a.heads.png")
    assert (record["image"], record["options"]["threshold"]) == ("photos/a.png", 0.6)
    assert record["options"]["checkpoint"] == "sets/tiny.pth"


def test_two_models_are_loaded_once_each(real, figure_set, loads, tmp_path):
    edit(figure_set, 'command = "rollout"', 'command = "rollout"\nprecision = "bfloat16"')
    edit(figure_set, "csv = true", "verify = true")
    assert real("render", "sets/all.toml").code == 0
    assert [request.precision for request in loads] == ["float32", "bfloat16"]
    assert len(files_below(tmp_path / "figures")) == len(FILES) - 1


def test_what_is_current_is_skipped_without_a_model(real, drawn_set, loads, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "figures").iterdir()}
    run = real("render", "sets/all.toml")
    assert (run.code, run.out, loads) == (0, "", [])
    assert run.err.splitlines()[-1] == "0 of 4 done, 4 skipped"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "figures").iterdir()} == before
    assert set(listed(real).values()) == {"current"}
    assert len(real("render", "sets/all.toml", "--overwrite").out.splitlines()) == len(FILES)


def test_only_what_changed_is_drawn_again(real, figure_set, tmp_path, tiny_weights):
    assert set(listed(real).values()) == {"draw"}
    assert not (tmp_path / "figures").exists()
    real("render", "sets/all.toml")
    changes = [
        (lambda: edit(figure_set, "0.6", "0.5"), {"a.heads.png"}),
        (
            lambda: save_scene(tmp_path / "photos/b.png", 40, 48, seed=1),
            {n for n in FILES if n[0] in "bt"},
        ),
        (
            (tmp_path / "figures/a.rollout.svg").unlink,
            {n for n in FILES if n[0:3] == "a.r"},
        ),
        ((tmp_path / "figures/third.score.csv").unlink, {"third.score.png"}),
        (lambda: other_weights(figure_set.parent / "tiny.pth"), set(FILES)),
    ]
    for change, stale in changes:
        change()
        found = {name for name, status in listed(real).items() if status == "draw"}
        assert found == {name for name in stale if not name.endswith("csv")}
        run = real("render", "sets/all.toml")
        assert run.code == 0, run.err
        drawn = {Path(line).name for line in run.out.splitlines()}
        assert drawn == stale | ({"third.score.csv"} if "third.score.png" in stale else set())


def other_weights(path: Path) -> None:
    from tests.helpers import checkpoints

    checkpoints.save(path, checkpoints.original(seed=1))


def test_a_set_means_the_same_from_every_folder(real, drawn_set, tmp_path):
    save_scene(tmp_path / "sets" / "x.png", 8, 8)
    absolute = real("render", tmp_path / "sets/all.toml", "--list")
    assert "draw" not in absolute.out
    # Records hold paths as seen from here; what is drawn is compared without them.
    assert real("render", tmp_path / "sets/all.toml", "--check").code == 0


def test_the_printed_command_of_a_figure_of_a_set_gives_it_again(real, drawn_set, tmp_path):
    for name in ("third.score.png", "b.rollout.pdf", "a.rollout.svg"):
        expected = (tmp_path / "figures" / name).read_bytes()
        line = real("info", f"figures/{name}").out.splitlines()[-1]
        (tmp_path / "figures" / name).unlink()
        assert real(*shlex.split(line)[1:]).code == 0
        assert (tmp_path / "figures" / name).read_bytes() == expected


# --- check -------------------------------------------------------------------------------------


def test_a_set_that_was_just_drawn_passes(real, drawn_set, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "figures").iterdir()}
    run = real("render", "sets/all.toml", "--check")
    assert (run.code, run.out) == (0, ""), run.out
    assert run.err.splitlines()[-1] == "4 of 4 done; 11 files compared, none differ"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "figures").iterdir()} == before
    assert not (tmp_path / "attnviz-diff").exists()


def test_a_changed_option_names_the_figure_and_draws_the_difference(real, drawn_set, tmp_path):
    edit(drawn_set, "threshold = 0.6", 'threshold = 0.5\ncmap = "hot"')
    run = real("render", "sets/all.toml", "--check", "--diff-out", "d")
    assert run.code == 1
    (line,) = run.out.splitlines()
    assert line.startswith(
        "figures/a.heads.png: was made with cmap inferno, not hot, threshold 0.6"
    )
    assert "RMS" in line
    assert "d/a.heads.png" in line
    expected = np.asarray(Image.open(tmp_path / "figures/a.heads.png").convert("RGB"))
    picture = np.asarray(Image.open(tmp_path / "d/a.heads.png"))
    height, width = expected.shape[:2]
    assert picture.shape == (height, 3 * width + 16, 3)
    np.testing.assert_array_equal(picture[:, :width], expected)


def test_files_that_are_missing_or_were_changed_by_hand_differ(
    real, drawn_set, tmp_path, monkeypatch
):
    # As on a machine where nothing draws them: a browser would take seconds for each.
    monkeypatch.setattr(rasterise, "_PDF_WAYS", ())
    monkeypatch.setattr(rasterise, "_SVG_WAYS", ())
    figures = tmp_path / "figures"
    (figures / "a.heads.png").unlink()
    for name, old, new in (
        ("a.rollout.svg", b"</svg>", b"<g/></svg>"),
        ("a.rollout.pdf", b"endobj", b" endobj"),
    ):
        content = (figures / name).read_bytes()
        (figures / name).write_bytes(content.replace(old, new, 1))
    with np.load(figures / "b.rollout.npz") as stored:
        arrays = dict(stored)
    arrays["rollout"] = arrays["rollout"] + np.float32(1e-4)
    np.savez(figures / "b.rollout.npz", **arrays)
    edit(figures / "third.score.csv", "\n0,0,0.", "\n0,0,1.")
    run = real("render", "sets/all.toml", "--check", "--json")
    assert run.code == 1
    records = {Path(r["path"]).name: r for r in map(json.loads, run.out.splitlines())}
    assert sorted(records) == FILES
    differing = {name: record["how"] for name, record in records.items() if "how" in record}
    assert differing == {
        "a.heads.png": "is not there",
        "a.rollout.svg": "is another drawing (rsvg-convert, Chromium or the package cairosvg would "
        "tell how far)",
        "a.rollout.pdf": "is another drawing (pdftoppm or the package pypdfium2 would tell how "
        "far)",
        "b.rollout.npz": "rollout differs by up to 0.0001",
        "third.score.csv": "score differs by up to 1",
    }


def test_a_pdf_is_checked_by_what_it_draws_and_its_difference_is_a_png(
    real, drawn_set, tmp_path, monkeypatch
):
    monkeypatch.setattr(rasterise, "_SVG_WAYS", ())
    figure = tmp_path / "figures" / "a.rollout.pdf"
    if rasterise.pages_of(figure) is None:
        pytest.skip("nothing here draws PDF")
    content = figure.read_bytes()
    figure.write_bytes(content.replace(b"endobj", b" endobj", 1))
    check = ("render", "sets/all.toml", "--check", "--only", "a.rollout", "--diff-out", "d")
    assert real(*check).code == 0
    figure.write_bytes(content.replace(b"/MediaBox [ 0 0 ", b"/MediaBox [ 2 2 "))
    run = real(*check)
    assert run.code == 1
    assert "a.rollout.pdf: " in run.out
    assert run.out.endswith("see d/a.rollout.pdf.png\n")
    assert (tmp_path / "d" / "a.rollout.pdf.png").read_bytes().startswith(b"\x89PNG")


def test_pixels_within_the_tolerance_pass(real, drawn_set, tmp_path):
    figure = tmp_path / "figures" / "a.heads.png"
    with Image.open(figure) as image:
        pixels, text = np.array(image.convert("RGB")), PngInfo()
        text.add_text("attnviz", image.text["attnviz"])
    for change, code in ((1, 0), (60, 1)):
        moved = pixels.copy()
        block = moved[:20, :20]
        block[:] = np.where(block > 127, block - change, block + change)
        Image.fromarray(moved).save(figure, pnginfo=text)
        run = real("render", "sets/all.toml", "--check", "--only", "a.heads")
        assert run.code == code, run.out
    expected = np.sqrt(60**2 * 400 / (pixels.shape[0] * pixels.shape[1]))
    assert f"RMS {expected:.3g}, largest 60 of 255" in run.out
    assert real("render", "sets/all.toml", "--check", "--only", "a", "--tolerance", "60").code == 0


# --- which figures, and what cannot be drawn ---------------------------------------------------


def test_only_some_figures(real, figure_set, tmp_path):
    assert real("render", "sets/all.toml", "--only", "third", "--only", "a.heads").code == 0
    assert files_below(tmp_path / "figures") == [
        "a.heads.png",
        "third.score.csv",
        "third.score.png",
    ]
    run = real("render", "sets/all.toml", "--only", "thrid")
    assert (run.code, "did you mean third" in run.err) == (2, True)


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('command = "score"\nname = "third"', 'command = "heads"\nname = "A"', 21, "of line 10"),
        ("photos/b.png", "photos/gone.png", 17, "images: photos/gone.png does not exist"),
        ('images = "../photos/b.png"', 'images = "../photos"', 23, "--name: 'third' can name"),
        ("0.6", "0.6\nlayer = 9", 14, "layer 9"),
        ("tiny.pth", "none.pth", 3, "--checkpoint: sets/none.pth does not exist"),
    ],
)
def test_what_cannot_be_drawn_is_told_before_anything_is_written(
    real, figure_set, tmp_path, old, new, line, reason
):
    edit(figure_set, old, new)
    if "heads" in new:
        edit(figure_set, "csv = true\n", "")
    run = real("render", "sets/all.toml")
    assert run.code == 2
    assert run.err.startswith(f"error: sets/all.toml:{line}: "), run.err
    assert reason in run.err
    assert not list(tmp_path.glob("figures/*"))


def test_a_picture_that_cannot_be_read_costs_itself(real, figure_set, tmp_path):
    (tmp_path / "photos" / "b.png").write_bytes(b"no picture")
    run = real("render", "sets/all.toml")
    assert run.code == 1
    assert run.err.splitlines()[-1] == "2 of 4 done, 2 failed"
    assert real("render", "sets/all.toml", "--check").code == 1


def test_check_and_list_exclude_each_other(real, figure_set):
    run = real("render", "sets/all.toml", "--check", "--list")
    assert (run.code, "exclude each other" in run.err) == (2, True)
