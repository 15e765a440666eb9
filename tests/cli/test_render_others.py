"""Figure sets with comparisons, checkpoints and explorer pages."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.cli.figure_set import read_figure_set
from attnviz.domain import ImageFormat
from attnviz.domain.comparison import CompareRequest
from attnviz.domain.evolution import EvolutionRequest
from attnviz.domain.explorer import ExploreRequest
from attnviz.output.read_record import read_record
from tests.explorer.pages import facts
from tests.helpers import checkpoints
from tests.helpers.command_line import files_below
from tests.helpers.photos import save_scene

SET = """
[defaults]
model-arg = "heads=2"
dpi = 30
alpha = 0.5
out = "../figures"

[[figure]]
command = "compare"
images = ["../photos/a.png", "../photos/b.png"]
checkpoint = ["tiny.pth"]
show = ["mean", "patch"]
at = [[0, 1]]
name = "two"

[[figure]]
command = "evolve"
checkpoints = ["run/*.pth"]
image = "../photos/a.png"
mask = "../photos/mask.png"
animation = true
format = ["png", "svg"]

[[figure]]
command = "explore"
image = "../photos/a.png"
checkpoint = "tiny.pth"
layers = -1

[[figure]]
command = "explore"
image = "../photos/b.png"
checkpoint = "tiny.pth"
rollout = false
out = "../pages/b.html"
"""
FIGURES = ["a.evolve.gif", "a.evolve.png", "a.evolve.svg", "a.explore.html", "two.compare.png"]


@pytest.fixture
def the_set(tmp_path, tiny_weights, monkeypatch) -> Path:
    """The set in sets/all.toml; runs start above it."""
    save_scene(tmp_path / "photos" / "a.png", 40, 40)
    save_scene(tmp_path / "photos" / "b.png", 40, 48)
    mask = np.zeros((40, 40), np.uint8)
    mask[8:24, 8:30] = 255
    Image.fromarray(mask).save(tmp_path / "photos" / "mask.png")
    path = tmp_path / "sets" / "all.toml"
    (path.parent / "run").mkdir(parents=True)
    shutil.copy(tiny_weights, path.parent / "tiny.pth")
    for number in (9, 10):
        weights = checkpoints.original(seed=number)
        checkpoints.save(path.parent / "run" / f"step{number}.pth", weights)
    path.write_text(SET)
    monkeypatch.chdir(tmp_path)
    return Path("sets/all.toml")


def statuses(real) -> dict[str, str]:
    run = real("render", "sets/all.toml", "--list")
    assert run.code == 0, run.err
    return {Path(line.split()[1]).name: line.split()[0] for line in run.out.splitlines()}


def test_entries_mean_what_they_mean_on_the_command_line(the_set):
    compare, evolve, explore, page = (figure.request for figure in read_figure_set(the_set))
    assert isinstance(compare, CompareRequest)
    assert [str(shown) for shown in compare.shown] == ["mean", "patch@0,1"]
    assert [model.checkpoint for model in compare.models] == [Path("sets/tiny.pth")]
    assert compare.inputs.inputs == ("photos/a.png", "photos/b.png")
    assert isinstance(evolve, EvolutionRequest)
    assert evolve.checkpoints == (Path("sets/run/step9.pth"), Path("sets/run/step10.pth"))
    assert (evolve.inputs.inputs, evolve.mask) == (("photos/a.png",), Path("photos/mask.png"))
    assert evolve.output.formats == (ImageFormat.PNG, ImageFormat.SVG)
    assert evolve.animation
    assert evolve.style.alpha != 0.5  # it draws no overlay
    assert isinstance(explore, ExploreRequest)
    assert (explore.layers, explore.file) == ((-1,), Path("figures/a.explore.html"))
    assert (page.rollout, page.file) == (False, Path("pages/b.html"))


def test_a_set_is_drawn_listed_checked_and_skipped(real, the_set, tmp_path):
    assert set(statuses(real).values()) == {"draw"}
    run = real("render", the_set)
    assert run.code == 0, run.err
    assert files_below(tmp_path / "figures") == FIGURES
    assert facts(tmp_path / "pages" / "b.html")["rollout"] is None
    assert "4 of 4 done" in run.err
    record = read_record(tmp_path / "figures" / "two.compare.png")
    assert record["rows"][1]["image"] == "photos/b.png"

    assert statuses(real) == dict.fromkeys([*FIGURES, "b.html"], "current")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "figures").iterdir()}
    again = real("render", the_set)
    assert (again.code, again.out) == (0, "")
    assert "0 of 4 done, 4 skipped" in again.err
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "figures").iterdir()}

    check = real("render", the_set, "--check")
    assert (check.code, check.out) == (0, "")
    assert "6 files compared, none differ" in check.err


def test_only_what_changed_is_drawn_again_and_the_check_says_what(real, the_set, tmp_path):
    assert real("render", the_set).code == 0
    text = the_set.read_text()
    for old, new in (("show = ", "layer = 0\nshow = "), ("layers = -1", "layers = 0")):
        text = text.replace(old, new)
    the_set.write_text(text)
    save_scene(tmp_path / "photos" / "b.png", 48, 40)
    wanted = {name: "current" for name in FIGURES if "evolve" in name}
    assert statuses(real) == wanted | dict.fromkeys(
        ["a.explore.html", "b.html", "two.compare.png"], "draw"
    )
    check = real("render", the_set, "--check")
    assert check.code == 1
    assert "figures/a.explore.html: was made with layers -1, not 0" in check.out
    assert "pages/b.html: was made with another image_sha256" in check.out
    assert "figures/two.compare.png: was made with layer its default, not 0" in check.out
    assert "3 differ" in check.err
    # A checkpoint that changed changes the figure of all.
    checkpoints.save(Path("sets/run/step9.pth"), checkpoints.original(seed=3))
    assert statuses(real)["a.evolve.gif"] == "draw"
    run = real("render", the_set, "--only", "two", "--only", "b.explore")
    assert sorted(run.out.splitlines()) == ["figures/two.compare.png", "pages/b.html"]


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('["run/*.pth"]', '["x/*.pth"]', 18, "checkpoints: sets/x/*.pth does not exist"),
        ('["run/*.pth"]', '["gone.pth"]', 18, "checkpoints: sets/gone.pth does not exist"),
        ('checkpoints = ["run/*.pth"]', "", 16, "checkpoints must be a list of checkpoints"),
        ('image = "../photos/a.png"\nmask', "mask", 16, "image must be one path"),
        ('image = "../photos/b.png"', 'images = ["../photos/b.png"]', 32, "unknown option"),
        ('"../pages/b.html"', '"../pages/b.png"', 35, "does not end in .html"),
        ('out = "../pages/b.html"', 'name = "b"', 35, "unknown option 'name' of explore"),
        ('show = ["mean", "patch"]', 'show = ["meen"]', 12, "meen"),
        ('"../photos/b.png"]', '"../photos/gone.png"]', 10, "gone.png"),
        ("rollout = false\nout = \"../pages/b.html\"", "out = '../figures/a.explore.html'", 30,
         "is also written by the figure of line 24"),
        ("dpi = 30", "checkpoints = ['a.pth']", 4, "checkpoints belongs to a figure"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(real, the_set, tmp_path, old, new, line, reason):
    text = the_set.read_text()
    assert old in text
    the_set.write_text(text.replace(old, new))
    run = real("render", the_set)
    assert (run.code, run.out) == (2, "")
    assert reason in run.err
    assert f"sets/all.toml:{line}: " in run.err
    assert not (tmp_path / "figures").exists()
