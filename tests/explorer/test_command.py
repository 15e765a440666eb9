"""``attnviz explore`` on the command line: where the page goes, and what is refused."""

from __future__ import annotations

import contextlib

import pytest

from tests.explorer.pages import blocks, facts
from tests.helpers.command_line import attnviz, files_below
from tests.helpers.photos import save_scene


@pytest.fixture
def real(tmp_path, capsys):
    """The command line in the test's own folder: exit code, output, errors."""

    def call(*arguments):
        capsys.readouterr()
        with contextlib.chdir(tmp_path):
            code = attnviz("explore", *arguments)
        return code, *capsys.readouterr()

    return call


def test_the_page_goes_to_the_default_folder_or_to_out(real, tmp_path):
    save_scene(tmp_path / "cat.png", 40, 40)
    shown = ("--layers", "-1", "--size", "32", "--verify")
    code, out, err = real("cat.png", "--model", "demo", *shown)
    assert (code, out) == (0, "attnviz-out/cat.explore.html\n")
    assert "1 of 1 done" in err
    assert "verified: attention times V is the model's own output in all 6 layers" in err
    page = tmp_path / "attnviz-out" / "cat.explore.html"
    assert facts(page)["layers"] == [5]
    assert facts(page)["rollout"]["depths"] == [5]
    code, out, _ = real(
        "cat.png", "--model", "demo", "--layers", "0,2", "--no-rollout", "-o", "new/deep/p.html"
    )
    assert (code, out) == (0, "new/deep/p.html\n")
    page = tmp_path / "new" / "deep" / "p.html"
    assert facts(page)["layers"] == [0, 2]
    assert facts(page)["rollout"] is None
    assert "rollout" not in blocks(page)


def test_a_page_is_replaced_as_a_whole(real, tmp_path):
    save_scene(tmp_path / "cat.png", 16, 16)
    (tmp_path / "page.html").write_text("x" * 10_000_000)
    assert real("cat.png", "--model", "demo", "--layers", "0", "-o", "page.html")[0] == 0
    assert facts(tmp_path / "page.html")["name"] == "cat.png"
    assert files_below(tmp_path) == ["cat.png", "page.html"]


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("gone.png", "--model", "demo"), 1, "gone.png"),
        (("two", "--model", "demo"), 2, "a page shows one image, and 2 were given"),
        (("two/a.png", "--model", "demo", "-o", "two"), 2, "two is a folder"),
        (("two/a.png", "--model", "demo", "-o", "two/a.png"), 2, "would overwrite the image"),
        (("two/a.png", "--model", "demo", "-o", "page.png"), 2, "--out page.html"),
        (("two/a.png", "--model", "demo", "-o", "two/b.png/x.html"), 2, "is not a folder"),
        (("two/a.png", "--model", "demo", "--layers", "6"), 2, "layer 6 does not exist"),
        (("two/a.png", "--model", "demo", "--layers", "x"), 2, "--layers"),
        (("two/a.png", "--model", "demo", "--size", "4"), 2, "smaller than one patch"),
        (("broken.png", "--model", "demo"), 1, "broken.png"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(real, tmp_path, arguments, code, reason):
    for name in ("a.png", "b.png"):
        save_scene(tmp_path / "two" / name, 16, 16)
    (tmp_path / "broken.png").write_bytes(b"not an image")
    before = files_below(tmp_path)
    exit_code, out, err = real(*arguments)
    assert (exit_code, out) == (code, "")
    assert reason in err
    assert "Traceback" not in err
    assert files_below(tmp_path) == before
