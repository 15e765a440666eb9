from __future__ import annotations

import errno
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from attnviz.domain import ImageFormat
from attnviz.errors import OutputError
from attnviz.output.atomic import complete_file
from attnviz.output.plan import OutputPlan
from attnviz.output.read_record import read_record
from attnviz.output.write import write_array_png, write_csv, write_figure, write_figures, write_npz
from tests.helpers.provenance import provenance

FORMATS = tuple(ImageFormat)


def figure(word: str = "Head 3") -> Figure:
    made = Figure(figsize=(2, 1))
    axes = made.add_subplot()
    axes.imshow([[0.0, 1.0], [0.5, 0.25]])
    axes.set_title(word)
    return made


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "cat.png"
    with complete_file(path) as stream:
        stream.write(b"half")
        stream.flush()
        assert not path.exists()
        assert all(part.name.startswith(".") for part in path.parent.iterdir())
    assert path.read_bytes() == b"half"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), ValueError("drawing"), MemoryError()])
def test_whatever_goes_wrong_leaves_the_folder_as_it_was(
    tmp_path: Path, problem: BaseException
) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(b"earlier")

    def write() -> None:
        with complete_file(path) as stream:
            stream.write(b"half")
            raise problem

    with pytest.raises(type(problem)):
        write()
    assert path.read_bytes() == b"earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_not_left_without_the_file_that_it_was_made_for(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "cat.png"
    with pytest.raises(ZeroDivisionError), complete_file(path) as stream:
        stream.write(bytes(1 // len(path.parent.name[4:])))
    assert list(tmp_path.iterdir()) == []


def test_a_page_of_too_many_pixels_names_the_most_that_it_can_have(tmp_path: Path) -> None:
    # 20 x 40 inches at 2400 dpi: 4.6 billion pixels; 5e8 / 800 = 625,000 = 790.57 ** 2
    large = Figure(figsize=(20, 40))
    with pytest.raises(
        OutputError, match=r"20 x 40\.0 inches is too large for --dpi 2400"
    ) as caught:
        write_figure(large, tmp_path / "a.png", ImageFormat.PNG, 2400, provenance())
    assert caught.value.hint.endswith("--dpi 790")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left") as caught:
        write_csv(tmp_path / "cat.csv", [{"a": 1}])
    assert "free some space" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file size limit")
def test_a_write_that_the_system_cuts_short_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from attnviz.errors import OutputError\n"
        "from attnviz.output.write import complete_file\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "try:\n"
        "    with complete_file(Path(sys.argv[1])) as stream:\n"
        "        stream.write(bytes(100_000))\n"
        "except OutputError as error:\n"
        "    print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "big.bin"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "big.bin cannot be written (File too large)" in run.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_that_name_is_told(tmp_path: Path) -> None:
    (tmp_path / "cat.csv").mkdir()
    with pytest.raises(OutputError, match=r"cat\.csv cannot be written"):
        write_csv(tmp_path / "cat.csv", [{"a": 1}])
    assert [path.name for path in tmp_path.iterdir()] == ["cat.csv"]


def test_files_have_the_permissions_that_the_user_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = write_csv(tmp_path / "cat.csv", [{"a": 1}]).path
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("image_format", FORMATS)
def test_a_figure_is_the_same_bytes_whenever_it_is_drawn(
    tmp_path: Path, image_format: ImageFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_figure(figure(), tmp_path / "1", image_format, 100, provenance()).path
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    second = write_figure(figure(), tmp_path / "2", image_format, 100, provenance()).path
    assert first.read_bytes() == second.read_bytes()
    third = write_figure(figure("Head 4"), tmp_path / "3", image_format, 100, provenance()).path
    assert first.read_bytes() != third.read_bytes()


@pytest.mark.parametrize("image_format", FORMATS)
def test_a_figure_carries_how_it_was_made_and_no_date(
    tmp_path: Path, image_format: ImageFormat
) -> None:
    path = tmp_path / f"cat.{image_format}"
    write_figure(figure(), path, image_format, 100, provenance())
    record = read_record(path)
    assert record is not None
    assert record["image"] == provenance().image
    content = path.read_bytes()
    assert b"CreationDate" not in content
    assert b"dc:date" not in content


def test_png_has_the_asked_resolution(tmp_path: Path) -> None:
    path = write_figure(figure(), tmp_path / "cat.png", ImageFormat.PNG, 150, provenance()).path
    with Image.open(path) as image:
        assert image.size == (300, 150)
        assert image.info["dpi"] == pytest.approx((150, 150), abs=0.1)


def test_text_of_vector_files_is_text(tmp_path: Path) -> None:
    pdf = write_figure(figure(), tmp_path / "cat.pdf", ImageFormat.PDF, 100, provenance()).path
    svg = write_figure(figure(), tmp_path / "cat.svg", ImageFormat.SVG, 100, provenance()).path
    assert b"/Type3" not in pdf.read_bytes()
    assert b"/FontFile2" in pdf.read_bytes()
    assert ">Head 3</text>" in svg.read_text()


def test_pages_are_one_pdf_and_numbered_pictures(tmp_path: Path) -> None:
    plan = OutputPlan(tmp_path, "cat", "layers")
    pages = [figure("1"), figure("2"), figure("3")]
    formats = (ImageFormat.PDF, ImageFormat.PNG)
    written = write_figures(pages, plan, formats, 50, provenance())
    assert [file.path.name for file in written] == [
        "cat.layers.pdf", "cat.layers.png", "cat.layers.2.png", "cat.layers.3.png",
    ]  # fmt: skip
    assert written[0].path.read_bytes().count(b"/Type /Page ") == 3
    assert all(read_record(file.path) for file in written)
    again = write_figures(pages, OutputPlan(tmp_path, "x", "layers"), formats, 50, provenance())
    assert again[0].path.read_bytes() == written[0].path.read_bytes()


def test_the_first_page_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    replace = Path.replace

    def noted(self: Path, target: Path) -> Path:
        order.append(Path(target).name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", noted)
    plan = OutputPlan(tmp_path, "cat", "layers")
    write_figures([figure(), figure()], plan, (ImageFormat.PNG,), 50, provenance())
    assert order == ["cat.layers.2.png", "cat.layers.png"]


def test_pages_that_a_longer_figure_left_are_removed_and_other_files_are_not(
    tmp_path: Path,
) -> None:
    plan = OutputPlan(tmp_path, "cat", "layers")
    write_figures([figure()] * 3, plan, (ImageFormat.PNG,), 50, provenance())
    (tmp_path / "cat.layers.3.png").write_bytes(b"not ours")
    write_figures([figure()], plan, (ImageFormat.PNG,), 50, provenance())
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["cat.layers.3.png", "cat.layers.png"]


@pytest.mark.parametrize("channels", [3, 4])
def test_an_overlay_keeps_its_pixels(tmp_path: Path, channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    written = write_array_png(pixels, tmp_path / "cat.heads.head0.png", provenance())
    with Image.open(written.path) as image:
        np.testing.assert_array_equal(np.asarray(image), pixels)
    assert read_record(written.path) is not None


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "attention": np.random.default_rng(0).random((2, 3, 4), np.float32),
        "layer": np.array(11),
        "kept": np.array([[True, False]]),
    }
    path = write_npz(tmp_path / "cat.heads.npz", arrays, provenance()).path
    with np.load(path, allow_pickle=False) as loaded:
        assert set(loaded.files) == {*arrays, "meta"}
        for name, array in arrays.items():
            assert loaded[name].dtype == array.dtype
            np.testing.assert_array_equal(loaded[name], array)
    with zipfile.ZipFile(path) as members:
        assert {member.date_time for member in members.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_a_table_keeps_full_precision_and_awkward_text(tmp_path: Path) -> None:
    rows = [
        {"image": 'a,"b"\n.png', "entropy": 0.1 + 0.2, "distance": None},
        {"image": os.fsdecode(b"\xff.png"), "entropy": 1.0, "distance": 2.5},
    ]
    path = write_csv(tmp_path / "cat.csv", rows).path
    assert path.read_bytes() == (
        b'image,entropy,distance\n"a,""b""\n.png",0.30000000000000004,\n\xff.png,1.0,2.5\n'
    )
