"""Pages that are too large, and folders that nothing is written to."""

from __future__ import annotations

import pytest


def test_a_page_of_too_many_pixels_is_one_line_with_the_largest_dpi(real, photos, tmp_path):
    run = real("heads", "photos/1.png", "--width", "100", "--dpi", "2400", "--out", "o")
    assert (run.code, run.out) == (2, "")
    assert "--dpi 2400 is too much for --width 100" in run.err
    assert "the largest for that width is --dpi 196" in run.err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("heads", "photos/1.png", "--layer", "99", "--table", "t/all.csv"),
        ("heads", "gone.png", "--table", "t/all.csv"),
        ("compare", "photos/1.png", "--show", "head:99"),
        ("explore", "photos/1.png", "--layers", "99"),
    ],
)
def test_a_run_that_writes_nothing_leaves_no_folder(real, tiny, photos, tmp_path, arguments):
    out = "o/page.html" if arguments[0] == "explore" else "o/deep"
    options = tiny[:4] if arguments[0] == "explore" else tiny
    run = real(*arguments, *options, "--out", out)
    assert run.code != 0
    assert run.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos"]


def test_a_folder_that_was_there_before_stays(real, tiny, photos, tmp_path):
    (tmp_path / "o").mkdir()
    assert real("heads", "photos/1.png", *tiny, "--layer", "99", "--out", "o").code == 2
    assert (tmp_path / "o").is_dir()
