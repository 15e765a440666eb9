"""Whole runs over folders as people have them: any shape, any name, links, pipes, old outputs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.output.plan import LONGEST_STEM
from tests.helpers import kinds
from tests.helpers.command_line import arrays, assert_same_arrays, files_below
from tests.helpers.photos import save_scene
from tests.helpers.pictures import exif_with_orientation, scene, stored_for

NAMES = (
    "Ba$$in", "x$_$y", "cost_$5_^$6", "a$b$", "-dash", "50%_off", "%s%n", "my [set]/a b", "{x}",
    "quote'\"`", "back\\slash", "new\nline", "猫と犬", "ünï", "e\u0301", "\u202eright", "tab\t",
    "~", "#1", "*?", "con", "a.b.c", " lead", "trail ", "x" * 246, "猫" * 82,
)  # fmt: skip


@pytest.mark.parametrize("command", ["heads", "patch"])
def test_every_name_gives_a_figure_of_its_own(real, tiny, tmp_path, command):
    for name in NAMES:
        save_scene(tmp_path / "in" / f"{name}.png", 32, 32)
    run = real(command, "in", *tiny, "--out", "o")
    assert run.code == 0, run.err
    assert run.err.splitlines()[-1] == f"{len(NAMES)} of {len(NAMES)} done"
    assert "Warning" not in run.err
    written = files_below(tmp_path / "o")
    assert len(written) == len(NAMES)
    for name in NAMES:
        if len(os.fsencode(name)) <= LONGEST_STEM:
            assert f"{name}.{command}.png" in written
    assert all(len(os.fsencode(Path(name).name)) <= 255 for name in written)


@pytest.mark.parametrize("command", kinds.BY_DEFAULT)
def test_every_shape_gives_a_figure(real, tiny, tmp_path, command):
    shapes = ((1, 1), (3000, 3), (3, 3000), (1, 40), (31, 33), (7, 7))
    for height, width in shapes:
        save_scene(tmp_path / "in" / f"{height}x{width}.png", height, width)
    run = real(command, "in", *tiny, "--out", "o", "--save-data")
    assert run.code == 0, run.err
    stems = {f"{height}x{width}.{command}" for height, width in shapes}
    assert {f"{stem}.{suffix}" for stem in stems for suffix in ("png", "npz")} <= set(
        files_below(tmp_path / "o")
    )
    for path in (tmp_path / "o").glob("*.png"):
        with Image.open(path) as image:
            assert 1 < image.height < 10_000
            assert np.asarray(image.convert("L")).std() > 0


def test_links_in_loops_pipes_and_outputs_in_the_input_folder(real, tiny, tmp_path):
    folder = tmp_path / "in"
    for name in ("a.png", "a.jpg", "A.bmp", "deep/a.png", "deep/b.png"):
        save_scene(folder / name, 32, 32)
    (folder / "deep" / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "self.png").symlink_to("self.png")
    (folder / "link.png").symlink_to("a.png")
    os.mkfifo(folder / "pipe.png")
    first = real("heads", "in", *tiny, "--out", "in/out")
    assert first.code == 1
    (failure,) = (line for line in first.err.splitlines() if line.startswith("failed: "))
    assert "self.png" in failure
    expected = sorted(
        ["A.bmp.heads.png", "a.jpg.heads.png", "a.png.heads.png", "deep/a.heads.png",
         "deep/b.heads.png", "failures.csv", "link.heads.png"]
    )  # fmt: skip
    assert files_below(folder / "out") == expected
    again = real("heads", "in", *tiny, "--out", "in/out", "--skip-existing")
    assert again.err.splitlines()[-1] == "0 of 7 done, 6 skipped, 1 failed"
    assert files_below(folder / "out") == expected
    (folder / "self.png").unlink()
    for _ in range(2):
        assert real("heads", "in", *tiny, "--out", "in").code == 0
    figures = [name for name in files_below(folder) if not name.startswith("out/")]
    assert sum(name.endswith(".heads.png") for name in figures) == 6


def test_a_picture_has_one_map_however_it_is_stored(real, tiny, tmp_path):
    upright = scene(40, 64)
    folder = tmp_path / "in"
    folder.mkdir()
    Image.fromarray(upright).save(folder / "plain.png")
    for turn in range(1, 9):
        stored = Image.fromarray(stored_for(turn, upright))
        stored.save(folder / f"turned{turn}.png", exif=exif_with_orientation(turn))
    Image.fromarray(upright).save(folder / "lossless.webp", lossless=True)
    Image.fromarray(np.dstack([upright, np.full((40, 64), 255, np.uint8)])).save(
        folder / "opaque.tiff"
    )
    assert real("heads", "in", *tiny, "--save-data", "--out", "o").code == 0
    maps = {path.name: arrays(path) for path in (tmp_path / "o").glob("*.npz")}
    assert len(maps) == 11
    plain = maps.pop("plain.heads.npz")
    for other in maps.values():
        assert_same_arrays(plain, other)


def test_sixteen_bits_have_the_map_of_eight(real, tiny, tmp_path):
    grey = scene(40, 64)[:, :, 0]
    (tmp_path / "in").mkdir()
    Image.fromarray(grey).save(tmp_path / "in" / "eight.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "in" / "sixteen.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "in" / "sixteen-tiff.tif")
    assert real("heads", "in", *tiny, "--save-data", "--out", "o").code == 0
    eight, *others = (
        arrays(tmp_path / "o" / f"{name}.heads.npz")
        for name in ("eight", "sixteen", "sixteen-tiff")
    )
    for other in others:
        assert_same_arrays(eight, other)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's memory limits")
def test_under_a_memory_limit_the_size_that_fits_is_told(warm_server, tmp_path):
    save_scene(tmp_path / "in" / "a.png", 64, 64)
    run = warm_server.run(
        "rollout", tmp_path / "in", "--model", "demo", "--size", "4096", "--device", "cpu",
        "--out", tmp_path / "o", memory_limit=8 << 30,
    )  # fmt: skip
    assert run.returncode == 1, run.stderr
    assert "Traceback" not in run.stderr
    assert "a model input of 4096x4096 needs about" in run.stderr
    assert "the largest square that fits is about --size " in run.stderr
