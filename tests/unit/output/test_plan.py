from __future__ import annotations

import os
import string
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.domain import ImageFile, ImageFormat
from attnviz.domain.requests import OutputRequest
from attnviz.errors import UsageError
from attnviz.output.atomic import complete_file
from attnviz.output.plan import NAME_BYTES, OutputPlan, check_folder, plan_outputs, shortened_stem

OUT = Path("out")


def below(path: str) -> ImageFile:
    """A file found in a searched folder: its place there is kept."""
    return ImageFile(Path("photos") / path, Path(path))


def alone(path: str) -> ImageFile:
    """A file named on its own."""
    return ImageFile(Path(path), Path(Path(path).name))


def names(*files: ImageFile, command: str = "heads") -> list[str]:
    plans = plan_outputs(files, command, OutputRequest(OUT))
    return [plans[file].path("png").relative_to(OUT).as_posix() for file in files]


def test_a_figure_is_stem_command_format() -> None:
    assert names(alone("x/cat.jpg"), command="rollout") == ["cat.rollout.png"]


def test_parts_pages_and_kinds_have_names_of_their_own() -> None:
    plan = OutputPlan(OUT, "cat", "heads")
    written = [
        plan.page("png", 1),
        plan.page("png", 2),
        plan.path("npz"),
        plan.path("png", "head3"),
    ]
    assert [path.name for path in written] == [
        "cat.heads.png", "cat.heads.2.png", "cat.heads.npz", "cat.heads.head3.png",
    ]  # fmt: skip


def test_sub_folders_are_kept_and_equal_stems_in_them_do_not_meet() -> None:
    assert names(below("s1/cat.png"), below("s2/cat.png")) == [
        "s1/cat.heads.png", "s2/cat.heads.png",
    ]  # fmt: skip


def test_two_suffixes_of_one_stem_both_keep_theirs() -> None:
    assert names(below("cat.jpg"), below("dog.jpg"), below("cat.png")) == [
        "cat.jpg.heads.png", "dog.heads.png", "cat.png.heads.png",
    ]  # fmt: skip


def test_files_of_one_name_from_two_folders_keep_the_folder() -> None:
    assert names(alone("s1/cat.png"), alone("s2/cat.png")) == [
        "s1-cat.png.heads.png", "s2-cat.png.heads.png",
    ]  # fmt: skip


def test_names_that_differ_in_case_alone_do_not_meet_on_any_disk() -> None:
    made = names(below("Cat.png"), below("cat.png"), below("CAT.jpg"))
    assert len({name.casefold() for name in made}) == 3


def test_names_that_differ_in_unicode_form_alone_do_not_meet() -> None:
    made = names(below("caf\u00e9.png"), below("cafe\u0301.png"))
    assert len({name.encode() for name in made}) == 2
    assert made[0] != "caf\u00e9.heads.png"


def test_a_name_that_looks_like_another_ones_longer_name_does_not_meet_it() -> None:
    made = names(below("cat.jpg"), below("cat.png"), below("cat.jpg.webp"))
    assert len(set(made)) == 3


def test_names_do_not_depend_on_the_order_of_the_inputs() -> None:
    files = [alone("a/cat.png"), alone("b/cat.png"), alone("b/Cat.png"), alone("cat.jpg")]
    forwards = dict(zip(files, names(*files), strict=True))
    backwards = dict(zip(files[::-1], names(*files[::-1]), strict=True))
    assert forwards == backwards


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "a", "b", "A"]),
            st.text(st.sampled_from("aA\u00e9e\u0301.-" + string.digits), min_size=1, max_size=4),
            st.sampled_from(["", ".png", ".PNG", ".jpg"]),
            st.booleans(),
        ),
        unique_by=lambda part: part[:3],
        max_size=12,
    )
)
@settings(max_examples=100, deadline=None)
def test_as_many_outputs_as_inputs(parts: list[tuple[str, str, str, bool]]) -> None:
    files = [
        (alone if single else below)((Path(folder) / (stem + suffix)).as_posix())
        for folder, stem, suffix, single in parts
        if (stem + suffix).strip(".")
    ]
    files = list(dict.fromkeys(files))
    plans = plan_outputs(files, "heads", OutputRequest(OUT))
    taken = {str(plan.path("png")).casefold() for plan in plans.values()}
    assert len(taken) == len(files)


@pytest.mark.parametrize(
    "name", ["-dash.png", "my [set].png", "50%_off.png", "quote'\".png", "Ba$$in.png", "\u732b.jpg"]
)
def test_awkward_names_are_kept_as_they_are(name: str) -> None:
    assert names(alone(name)) == [f"{Path(name).stem}.heads.png"]


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\u732b", "\U0001f408"])
def test_long_names_are_cut_between_characters_and_stay_distinct(letter: str) -> None:
    size = len(letter.encode())
    first, second = (letter * ((249 - size) // size) + end + ".png" for end in "ab")
    made = names(below(first), below(second), command="rollout")
    assert len(set(made)) == 2
    for name in made:
        assert name.startswith(letter * 40)
        longest = name.removesuffix(".png") + ".head127.png"
        assert len(longest.encode()) <= NAME_BYTES


def test_a_long_name_that_is_no_utf8_is_shortened_too() -> None:
    stem = os.fsdecode(b"\xff" * 250)
    assert len(os.fsencode(shortened_stem(stem))) < 100


def test_short_names_are_never_touched() -> None:
    assert shortened_stem("x" * 223) == "x" * 223
    assert shortened_stem("x" * 224) != "x" * 224


def test_a_figure_never_takes_the_place_of_an_input() -> None:
    files = [ImageFile(OUT / name, Path(name)) for name in ("cat.png", "cat.heads.png")]
    with pytest.raises(UsageError, match="would overwrite an input"):
        plan_outputs(files, "heads", OutputRequest(OUT))
    plan_outputs(files, "heads", OutputRequest(OUT, formats=(ImageFormat.PDF,)))


@pytest.mark.parametrize("relative", ["../cat.png", "/cat.png", "a/../../cat.png"])
def test_nothing_is_planned_outside_the_output_folder(relative: str) -> None:
    with pytest.raises(ValueError, match="leaves the output folder"):
        plan_outputs([ImageFile(Path("cat.png"), Path(relative))], "heads", OutputRequest(OUT))


def test_a_folder_is_tried_and_does_not_stay_behind(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").mkdir()
    check_folder(tmp_path / "a" / "b")
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]


def test_runs_that_begin_together_do_not_take_the_folder_from_each_other(tmp_path: Path) -> None:
    def write(number: int) -> None:
        check_folder(tmp_path / "a" / "b")
        with complete_file(tmp_path / "a" / "b" / f"{number}") as stream:
            stream.write(b"x")
        (tmp_path / "a" / "b" / f"{number}").unlink()
        with suppress(OSError):
            (tmp_path / "a" / "b").rmdir()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(100)))


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("mine")
    for place in (file, file / "inner"):
        with pytest.raises(UsageError, match="file is in the way") as caught:
            check_folder(place)
        assert caught.value.exit_code == 2
    assert file.read_text() == "mine"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_a_place_where_nothing_can_be_made_is_told() -> None:
    with pytest.raises(UsageError, match="/proc/x cannot be written"):
        check_folder(Path("/proc/x"))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(UsageError, match="Permission denied"):
        check_folder(tmp_path)


def test_a_name_that_no_disk_takes_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        check_folder(tmp_path / ("x" * 300))


def test_what_a_killed_run_left_is_removed_once_it_is_old(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in (".attnviz-1.tmp", ".attnviz-2.tmp", "x.tmp"))
    for file in (old, new, other):
        file.touch()
    os.utime(old, (0, 0))
    os.utime(other, (0, 0))
    check_folder(tmp_path.parent, [OutputPlan(tmp_path, "cat", "heads")])
    assert sorted(tmp_path.iterdir()) == sorted([new, other])
