"""``--stride`` through the real command line."""

from __future__ import annotations

import shlex

import numpy as np
import pytest
from PIL import Image

from tests.helpers.command_line import arrays, files_below, meta
from tests.helpers.photos import save_scene


@pytest.fixture
def picture(tmp_path):
    return save_scene(tmp_path / "a.png", 40, 48)


def test_figure_data_and_record_state_the_stride(real, picture, tiny, tmp_path):
    run = real("heads", "a.png", *tiny, "--size", "original", "--stride", "4", "--save-data",
               "-f", "svg", "-f", "png", "--out", "out")  # fmt: skip
    assert run.code == 0, run.err
    assert arrays(tmp_path / "out" / "a.heads.npz")["attention"].shape == (2, 9, 11)
    record = meta(tmp_path / "out" / "a.heads.npz")
    assert record["options"]["stride"] == 4
    assert record["architecture"]["stride"] == 4
    assert record["grid"] == [9, 11]
    text = (tmp_path / "out" / "a.heads.svg").read_text(encoding="utf-8")
    assert "8 px patches every 4 px" in text
    assert "no cell at the edges: 2 input px" in text
    before = (tmp_path / "out" / "a.heads.png").read_bytes()
    line = real("info", "out/a.heads.png").out.strip().splitlines()[-1]
    assert "--stride 4" in line
    (tmp_path / "out" / "a.heads.png").unlink()
    assert real(*shlex.split(line)[1:]).code == 0
    assert (tmp_path / "out" / "a.heads.png").read_bytes() == before


def test_the_patch_as_stride_draws_the_same_pixels(real, picture, tiny, tmp_path):
    for folder, more in (("plain", ()), ("same", ("--stride", "8"))):
        assert real("heads", "a.png", *tiny, *more, "--out", folder, "-q").code == 0
    plain, same = (np.asarray(Image.open(tmp_path / f / "a.heads.png")) for f in ("plain", "same"))
    assert (plain == same).all()
    assert "stride" not in meta(tmp_path / "same" / "a.heads.png")["architecture"]


def test_points_choose_the_cell_about_them(real, picture, tiny, tmp_path):
    options = (*tiny, "--size", "original", "--stride", "4", "--save-data", "-q")
    assert real("patch", "a.png", *options, "--xy", "2,2", "--xy", "45.9,37.9").code == 0
    cells = arrays(tmp_path / "attnviz-out" / "a.patch.npz")["cells"]
    assert cells.tolist() == [[0, 0], [8, 10]]
    run = real("patch", "a.png", *options, "--xy", "1,20", "--out", "none")
    assert run.code == 1
    assert "lies in the edge of 2 input pixels that has no cell" in run.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("heads", "a.png", "--model", "dinov2_vits14", "--stride", "4"), "14 pixels"),
        (("heads", "a.png", "--model", "demo", "--stride", "3"), "--stride 3 does not divide"),
        (("heads", "a.png", "--model", "demo", "--stride", "0"), "--stride"),
        (("explore", "a.png", "--model", "demo", "--stride", "16"), "does not divide"),
    ],
)
def test_strides_that_are_none(real, picture, tmp_path, arguments, message):
    run = real(*arguments, *("--out", "out/a.html" if arguments[0] == "explore" else "out"))
    assert (run.code, message in run.err) == (2, True), run.err
    assert files_below(tmp_path / "out") == []


def test_all_commands_draw_the_finer_grid(real, picture, tiny, tmp_path):
    options = (*tiny[:4], "--stride", "4")
    save_scene(tmp_path / "masks" / "a.png", 40, 48)
    commands = {
        "compare": ("a.png", "--show", "mean,rollout,pca,norm,patch@1,2", "--dpi", "30"),
        "features": ("a.png", "--foreground", "--at", "2,3", "--dpi", "30"),
        "layers": ("a.png", "--dpi", "30"),
        "rollout": ("a.png", "--dpi", "30", "--interpolation", "bilinear"),
        "score": ("a.png", "--dpi", "30"),
        "matrix": ("a.png", "--dpi", "30"),
        "qkv": ("a.png", "--dpi", "30"),
        "relevance": ("a.png", "--like", "masks/a.png", "--dpi", "30"),
        "explore": ("a.png", "-o", "out/a.html"),
        "eval": ("a.png", "masks"),
    }
    for command, more in commands.items():
        out = () if command in ("explore", "eval") else ("--out", "out")
        run = real(command, *more, *options, *out, "-q")
        assert run.code == 0, (command, run.err)
        path = tmp_path / "out" / f"a.{command}.png"
        if path.exists():
            assert meta(path)["grid"] == [7, 9], command
    page = (tmp_path / "out" / "a.html").read_text(encoding="utf-8")
    assert '"grid":[7,9]' in page.replace(" ", "")
    assert "8 px patches every 4 px" in page
