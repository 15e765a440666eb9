"""Inputs to files: order, junk, globs, lists, links, and inputs that are not there."""

from __future__ import annotations

import io
import os
import socket
from pathlib import Path

import pytest

from attnviz.errors import ImageError
from attnviz.images.find import FoundImages, find_images
from attnviz.images.names import natural_key, printable


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"x")


def paths(found: FoundImages) -> list[str]:
    return [str(file.path) for file in found.files]


def relatives(found: FoundImages) -> list[str]:
    return [str(file.relative) for file in found.files]


def reasons(found: FoundImages) -> dict[str, str]:
    return {str(path): reason for path, reason in found.skipped}


def test_folder_is_searched_in_natural_order_and_keeps_its_sub_folders(folder: Path) -> None:
    touch("in/10.png", "in/2.png", "in/1.png", "in/b/x2.JPG", "in/b/x10.jpeg", "in/A.TIF")
    found = find_images(["in"])
    assert relatives(found) == ["1.png", "2.png", "10.png", "A.TIF", "b/x2.JPG", "b/x10.jpeg"]
    assert paths(found)[-1] == "in/b/x10.jpeg"
    assert found.missing == ()


def test_junk_is_listed_and_never_taken(folder: Path) -> None:
    touch("in/.DS_Store", "in/Thumbs.db", "in/._photo.jpg", "in/notes.txt", "in/10.png", "in/2.png")
    touch("in/x.jpg/inner.png", "in/.cache/hidden.png", "in/1.png")
    found = find_images(["in"])
    assert relatives(found) == ["1.png", "2.png", "10.png", "x.jpg/inner.png"]
    assert reasons(found) == {
        "in/.DS_Store": "hidden",
        "in/._photo.jpg": "hidden",
        "in/.cache": "hidden",
        "in/Thumbs.db": "no image suffix",
        "in/notes.txt": "no image suffix",
    }


def test_file_named_on_its_own_is_taken_whatever_its_name(folder: Path) -> None:
    touch("a/b/scan", "a/notes.txt", "a/.hidden.png")
    found = find_images(["a/b/scan", "a/notes.txt", "a/.hidden.png"])
    assert relatives(found) == ["scan", "notes.txt", ".hidden.png"]


def test_awkward_names_are_found_as_they_are(folder: Path) -> None:
    names = ["Ba$$in.png", "x$_$y.png", "cost_$5_^$6.png", "a$b$.png", "-dash.png", "50%_off.png"]
    names += ["my [set]/a b.png", "quote'\".png", "猫.png", "n" * 246 + ".png", "line\nbreak.png"]
    touch(*("in/" + name for name in names))
    assert sorted(relatives(find_images(["in"]))) == sorted(names)
    one_by_one = find_images(["in/" + name for name in names])
    assert paths(one_by_one) == ["in/" + name for name in names]
    assert one_by_one.missing == ()


def test_name_that_is_not_valid_text_is_found_and_shown(folder: Path) -> None:
    raw = b"caf\xe9.png"
    Path("in").mkdir()
    try:
        Path(os.fsdecode(b"in/" + raw)).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system takes valid text only")
    found = find_images(["in"])
    assert os.fsencode(found.files[0].path) == b"in/" + raw
    assert printable(found.files[0].path) == "in/caf\\udce9.png"


def test_existing_path_with_brackets_wins_over_the_glob_reading(folder: Path) -> None:
    touch("my [set]/a.png", "my s/b.png", "cat[1].png", "cat1.png")
    assert paths(find_images(["my [set]"])) == ["my [set]/a.png"]
    assert paths(find_images(["cat[1].png"])) == ["cat[1].png"]
    assert paths(find_images(["cat[12].png"])) == ["cat1.png"]


def test_glob_keeps_what_lies_below_its_fixed_part(folder: Path) -> None:
    touch("in/s1/cat.png", "in/s2/cat.png", "in/s2/deep/cat.png", "in/s10/cat.png", "in/s1/n.txt")
    found = find_images(["in/s*/cat.png"])
    assert relatives(found) == ["s1/cat.png", "s2/cat.png", "s10/cat.png"]
    everywhere = find_images(["in/**/*.png"])
    assert "s2/deep/cat.png" in relatives(everywhere)
    assert len(everywhere.files) == 4
    folders = find_images(["in/s*"])
    assert sorted(relatives(folders)) == sorted(relatives(everywhere))
    assert reasons(folders) == {"in/s1/n.txt": "no image suffix"}


def test_glob_takes_any_file_only_if_it_spells_the_suffix(folder: Path) -> None:
    touch("in/a.dat", "in/a.png", "in/.b.png")
    assert paths(find_images(["in/*.dat"])) == ["in/a.dat"]
    assert paths(find_images(["in/*"])) == ["in/a.png"]
    assert paths(find_images(["in/.*"])) == ["in/.b.png"]


@pytest.mark.parametrize("bad", ["in/**x/*.png", "in/[", "in/*.gif", "nope/*.png"])
def test_glob_without_a_match_or_meaning_is_named(folder: Path, bad: str) -> None:
    touch("in/a.png")
    found = find_images([bad, "in/a.png"])
    assert paths(found) == ["in/a.png"]
    [(written, error)] = found.missing
    assert written == bad
    assert isinstance(error, ImageError)
    assert bad in str(error)
    assert error.hint


@pytest.mark.parametrize(
    "listing",
    ["b.png\na b.png\n", "b.png\r\na b.png\r\n", "b.png\0a b.png\0", "\ufeffb.png\n\na b.png"],
)
def test_list_on_standard_input(folder: Path, listing: str) -> None:
    touch("a b.png", "b.png")
    assert paths(find_images(["-"], stdin=io.StringIO(listing))) == ["b.png", "a b.png"]


def test_list_is_taken_literally_and_as_bytes(folder: Path) -> None:
    touch("a[1].png", "a1.png")
    stream = io.TextIOWrapper(io.BytesIO(b"a[1].png\ncaf\xe9.png\na?.png\n"), encoding="utf-8")
    found = find_images(["-"], stdin=stream)
    assert paths(found) == ["a[1].png"]
    assert [written for written, _ in found.missing] == [os.fsdecode(b"caf\xe9.png"), "a?.png"]


def test_nul_list_keeps_line_breaks_in_names(folder: Path) -> None:
    touch("line\nbreak.png")
    assert paths(find_images(["-"], stdin=io.StringIO("line\nbreak.png\0"))) == ["line\nbreak.png"]


def test_empty_list_is_an_error(folder: Path) -> None:
    [(written, error)] = find_images(["-"], stdin=io.StringIO("\n\n")).missing
    assert (written, str(error)) == ("-", "standard input lists no paths")


def test_missing_inputs_are_errors_and_the_rest_goes_on(folder: Path) -> None:
    touch("ok.png")
    Path("empty").mkdir()
    touch("text/notes.txt")
    inputs = ["nope.jpg", "empty", "text", "ok.png", "", "nul\0byte", "n" * 300]
    found = find_images(inputs)
    assert paths(found) == ["ok.png"]
    said = {written: str(error) for written, error in found.missing}
    assert list(said) == ["nope.jpg", "empty", "text", "", "nul\0byte", "n" * 300]
    assert said["nope.jpg"] == "nope.jpg does not exist"
    assert said["empty"] == "empty holds no images"
    assert said["text"] == "text holds no images"
    assert "file name too long" in said["n" * 300]
    assert all(error.hint and "\0" not in str(error) for _, error in found.missing)


def test_same_file_named_twice_is_taken_once(folder: Path) -> None:
    touch("in/a.png", "in/b.png")
    inputs = ["in/b.png", "in", "./in/../in/a.png", str(folder / "in" / "a.png"), "in/*.png"]
    found = find_images(inputs)
    assert paths(found) == ["in/b.png", "in/a.png"]
    assert found.missing == ()


def test_link_beside_its_target_is_a_picture_of_its_own(folder: Path) -> None:
    touch("in/a.png")
    Path("in/b.png").symlink_to("a.png")
    assert relatives(find_images(["in"])) == ["a.png", "b.png"]


@pytest.mark.timeout(20)
def test_links_in_loops_end(folder: Path) -> None:
    touch("in/a/1.png", "in/b/2.png")
    Path("in/a/up").symlink_to("..")
    Path("in/b/up").symlink_to("..")
    Path("in/b/self").symlink_to("self")
    Path("in/c").symlink_to("a")
    assert relatives(find_images(["in"])) == ["a/1.png", "b/2.png"]
    assert sorted(relatives(find_images(["in/**/*.png"]))) == ["a/1.png", "b/2.png"]


def test_link_to_nothing_is_an_error_if_it_names_a_picture(folder: Path) -> None:
    touch("in/a.png")
    Path("in/gone.png").symlink_to("nowhere.png")
    Path("in/gone.txt").symlink_to("nowhere.txt")
    found = find_images(["in", "in/gone.png"])
    assert paths(found) == ["in/a.png"]
    assert [str(error) for _, error in found.missing] == ["in/gone.png is a link to nothing"] * 2
    assert reasons(found) == {"in/gone.txt": "no image suffix"}


@pytest.mark.timeout(20)
def test_pipes_sockets_and_devices_are_never_opened(folder: Path) -> None:
    touch("in/a.png")
    os.mkfifo("in/pipe.png")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("in/sock.png")
        found = find_images(["in", "in/pipe.png", "/dev/zero"])
    assert paths(found) == ["in/a.png"]
    assert reasons(found) == dict.fromkeys(
        ["in/pipe.png", "in/sock.png"], "a pipe, socket or device"
    )
    assert [written for written, _ in found.missing] == ["in/pipe.png", "/dev/zero"]


def test_output_folder_inside_the_input_is_left_out(folder: Path) -> None:
    touch("in/cat.jpg", "in/out/cat.heads.png", "in/out/deep/cat.png")
    for exclude in (Path("in/out"), folder / "in" / "out"):
        found = find_images(["in"], exclude=exclude)
        assert relatives(found) == ["cat.jpg"]
        assert reasons(found) == {"in/out": "the output folder"}
    assert len(find_images(["in/out/cat.heads.png"], exclude=Path("in/out")).files) == 1


def test_figures_are_recognised_where_input_and_output_are_one_folder(folder: Path) -> None:
    touch(
        "in/cat.jpg", "in/cat.heads.png", "in/s/dog.jpg.score.png", "in/heads.png", "in/a.heads.jpg"
    )
    found = find_images(["in"], exclude=Path("in"))
    assert relatives(found) == ["a.heads.jpg", "cat.jpg", "heads.png"]
    assert set(reasons(found)) == {"in/cat.heads.png", "in/s/dog.jpg.score.png"}
    assert relatives(find_images(["in/*.png"], exclude=Path("in"))) == ["heads.png"]
    assert len(find_images(["in"]).files) == 5


def test_folder_that_cannot_be_listed_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch("in/a.png", "in/closed/b.png")
    scandir = os.scandir

    def guarded(path: Path) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    found = find_images(["in", "in/closed"])
    assert paths(found) == ["in/a.png"]
    assert [str(error) for _, error in found.missing] == [
        "in/closed cannot be opened: permission denied"
    ] * 2


def test_natural_key_orders_numbers_by_value_and_ignores_case() -> None:
    names = ["a10.png", "A2.png", "a2.png", "b/1.png", "a02.png", "10.png", "9.png", "٣.png"]
    assert sorted(names, key=lambda name: natural_key(Path(name))) == [
        "٣.png",
        "9.png",
        "10.png",
        "A2.png",
        "a02.png",
        "a2.png",
        "a10.png",
        "b/1.png",
    ]


def test_shown_is_one_printable_line() -> None:
    assert printable("a\nb\x1b[31m.png") == "a\\nb\\x1b[31m.png"
    assert printable(Path("猫 $5.png")) == "猫 $5.png"
