"""A file to pixels, or to one ImageError that names it."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import tracemalloc
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from attnviz.domain import DEFAULT_MAX_PIXELS, RgbImage
from attnviz.errors import ImageError
from attnviz.images.quiet import quiet
from attnviz.images.read import read_image
from tests.helpers.pictures import (
    as_file,
    encoded,
    exif_with_orientation,
    png_header_only,
    scene,
    stored_for,
)
from tests.helpers.versions import older_than

SAMPLES = Path(__file__).parents[3] / "sample_images"


@pytest.fixture(autouse=True)
def _pillow_keeps_its_state():
    before = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
    yield
    assert before == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)


def read(path: Path, max_pixels: int = DEFAULT_MAX_PIXELS) -> RgbImage:
    return read_image(as_file(path), max_pixels=max_pixels)


def read_bytes(folder: Path, name: str, data: bytes, max_pixels: int = 10**6) -> RgbImage:
    path = folder / name
    path.write_bytes(data)
    return read(path, max_pixels)


def refusal(folder: Path, name: str, data: bytes, max_pixels: int = 10**6) -> ImageError:
    with pytest.raises(ImageError) as caught:
        read_bytes(folder, name, data, max_pixels)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    return caught.value


def test_pixels_hash_and_size_are_the_files(tmp_path: Path) -> None:
    pixels = scene(30, 50)
    data = encoded(Image.fromarray(pixels), "PNG")
    image = read_bytes(tmp_path, "a.png", data)
    np.testing.assert_array_equal(image.pixels, pixels)
    assert image.size == (30, 50)
    assert image.sha256 == hashlib.sha256(data).hexdigest()
    assert image.notes == ()
    assert image.pixels.flags.c_contiguous


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("cat", (300, 451)),
        ("coffee", (400, 600)),
        ("astronaut", (512, 512)),
        ("rocket", (427, 640)),
    ],
)
def test_sample_pictures_are_read_without_remarks(name: str, size: tuple[int, int]) -> None:
    image = read(SAMPLES / f"{name}.jpg")
    assert image.size == size
    assert image.notes == ()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP", "JPEG"])
def test_every_orientation_comes_out_upright(tmp_path: Path, form: str, orientation: int) -> None:
    upright = scene(120, 80)
    stored = Image.fromarray(stored_for(orientation, upright))
    options = {"lossless": True} if form == "WEBP" else {}
    if form == "JPEG":
        options = {"quality": 95, "subsampling": 0}
    data = encoded(stored, form, exif=exif_with_orientation(orientation), **options)
    image = read_bytes(tmp_path, f"a.{form.lower()}", data)
    assert image.size == (120, 80)
    difference = np.abs(image.pixels.astype(int) - upright)
    assert difference.mean() < (2 if form == "JPEG" else 1e-9)


def test_damaged_exif_does_not_spoil_the_pixels(tmp_path: Path) -> None:
    pixels = scene(16, 24)
    for exif in (
        b"Exif\0\0II*\0\xff\xff\xff\x7f",
        b"Exif\0\0garbage",
        b"Exif\0\0MM\0*\0\0\0\x08\xff",
    ):
        data = encoded(Image.fromarray(pixels), "PNG", exif=exif)
        np.testing.assert_array_equal(read_bytes(tmp_path, "a.png", data).pixels, pixels)


@pytest.mark.parametrize("suffix", [".JPG", ".Jpeg", ".png", ".tif", "", ".dat", ".jfif"])
def test_content_decides_and_a_wrong_suffix_is_noted(tmp_path: Path, suffix: str) -> None:
    data = encoded(Image.fromarray(scene(20, 20)), "JPEG")
    notes = read_bytes(tmp_path, "a" + suffix, data).notes
    wrong = suffix in (".png", ".tif")
    assert notes == ((f"JPEG content under the suffix {suffix}",) if wrong else ())


def frames() -> list[Image.Image]:
    return [Image.new("RGB", (12, 8), colour) for colour in ("red", "green", "blue")]


@pytest.mark.parametrize("form", ["GIF", "TIFF", "PNG", "WEBP", "MPO", "AVIF"])
def test_first_frame_is_taken_and_said(tmp_path: Path, form: str) -> None:
    if form == "AVIF" and form not in Image.SAVE:
        pytest.skip("this Pillow writes no AVIF")
    first, *rest = frames()
    data = encoded(first, form, save_all=True, append_images=rest)
    image = read_bytes(tmp_path, f"a.{form.lower()}", data)
    assert image.notes == ("first of 3 frames",)
    assert np.abs(image.pixels.reshape(-1, 3).mean(0) - (255, 0, 0)).max() < 6


@pytest.mark.parametrize("suffix", [".jpg", ".JPEG", ".mpo"])
def test_phone_picture_that_carries_a_second_one_is_rightly_a_jpg(
    tmp_path: Path, suffix: str
) -> None:
    first, *rest = frames()
    data = encoded(first, "MPO", save_all=True, append_images=rest)
    assert read_bytes(tmp_path, "a" + suffix, data).notes == ("first of 3 frames",)


@pytest.mark.parametrize("keep", [0.5, 0.98])
@pytest.mark.parametrize("progressive", [False, True])
def test_cut_jpeg_is_refused(tmp_path: Path, keep: float, progressive: bool) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), "JPEG", progressive=progressive)
    error = refusal(tmp_path, "cut.jpg", data[: int(len(data) * keep)])
    assert "truncated" in str(error)


@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP", "BMP", "GIF", "PPM", "JPEG2000"])
def test_file_cut_in_half_is_refused(tmp_path: Path, form: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), form)
    refusal(tmp_path, "cut.bin", data[: len(data) // 2])


def test_empty_file_is_refused(tmp_path: Path) -> None:
    assert "is empty (0 bytes)" in str(refusal(tmp_path, "a.png", b""))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            b"Shopping list: milk, eggs",
            "is text, not an image (it begins with 'Shopping list: milk, egg')",
        ),
        (
            b"<!DOCTYPE html>\n<html>",
            "is text, not an image (it begins with '<!DOCTYPE html> <html>')",
        ),
        (b"hi\n", "is text, not an image (it begins with 'hi')"),
        ("Grüße\n".encode() * 200, "is text"),
        (b"Python is fun", "is text"),
        (b"\x00\x01\x02\x03" * 100, "is not an image of a known format"),
        (b"\x89PNG\r\n\x1a\n and then nothing", "is a damaged PNG file"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is text"),
    ],
)
def test_what_is_no_picture_is_called_by_its_name(tmp_path: Path, data: bytes, said: str) -> None:
    error = refusal(tmp_path, "photo.jpg", data)
    assert said in str(error)


def test_heic_without_its_plug_in_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    error = refusal(tmp_path, "a.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 40)
    assert "HEIC needs the pillow-heif plug-in" in str(error)
    assert error.hint == "pip install pillow-heif"
    # A brand that AVIF and HEIC share
    error = refusal(tmp_path, "a.heic", b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic" + b"\0" * 40)
    assert "HEIC needs the pillow-heif plug-in" in str(error)
    monkeypatch.setitem(sys.modules, "pillow_jxl", None)
    assert refusal(tmp_path, "a.jxl", b"\xff\x0a" + b"\0" * 40).hint.endswith("pillow-jxl-plugin")


def test_heic_is_read_through_its_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in = types.ModuleType("pillow_heif")

    def open_heif(stream: object, name: str) -> Image.Image:
        return Image.new("RGB", (5, 4), "red")

    def register_heif_opener() -> None:
        monkeypatch.setitem(Image.OPEN, "HEIF", (open_heif, lambda start: b"ftypheic" in start))

    plug_in.register_heif_opener = register_heif_opener
    monkeypatch.setitem(sys.modules, "pillow_heif", plug_in)
    data = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
    for _ in range(2):  # the second time, Pillow knows the format
        assert read_bytes(tmp_path, "a.HEIC", data).size == (4, 5)


def test_format_that_this_pillow_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.init()
    monkeypatch.setitem(Image.OPEN, "WEBP", (None, None))
    monkeypatch.setitem(Image.OPEN, "AVIF", (object, lambda start: "support is not installed"))
    error = refusal(tmp_path, "a.avif", b"\0\0\0\x18ftypavif\0\0\0\0")
    assert "this Pillow cannot read AVIF" in str(error)


def test_what_cannot_be_opened_is_said_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ImageError, match=r"gone\.png cannot be read: No such file"):
        read(tmp_path / "gone.png")
    with pytest.raises(ImageError, match="is a folder"):
        read(tmp_path)
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(ImageError, match="is a pipe"):
        read(tmp_path / "pipe.png")
    with pytest.raises(ImageError, match="cannot be read"):
        read(tmp_path / "nul\0.png")
    (tmp_path / "line\nbreak.png").write_bytes(b"")
    with pytest.raises(ImageError, match=r"line\\nbreak\.png is empty"):
        read(tmp_path / "line\nbreak.png")

    def denied(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)
    (tmp_path / "a.png").touch()
    with pytest.raises(ImageError, match=r"a\.png cannot be read: Permission denied") as caught:
        read(tmp_path / "a.png")
    assert isinstance(caught.value.__cause__, PermissionError)


def test_out_of_memory_costs_one_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(self: Image.Image) -> None:
        raise MemoryError

    data = encoded(Image.fromarray(scene(8, 8)), "PNG")
    Image.init()
    monkeypatch.setattr(ImageFile.ImageFile, "load", exhausted)
    monkeypatch.setattr(Image.OPEN["PNG"][0], "load", exhausted, raising=False)
    assert "does not fit into memory" in str(refusal(tmp_path, "a.png", data))


def test_tiny_file_that_declares_a_huge_picture_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header_only(60_000, 60_000))
    tracemalloc.start()
    with pytest.raises(ImageError) as caught:
        read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "60000x60000" in str(caught.value)
    assert "--max-pixels 3600000000" in caught.value.hint
    assert peak < 5e6


def test_limit_is_the_callers_and_not_pillows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = scene(20, 30)
    with monkeypatch.context() as patched:
        patched.setattr(Image, "MAX_IMAGE_PIXELS", 10)
        for form in ("PNG", "BMP", "PPM"):
            data = encoded(Image.fromarray(pixels), form)
            np.testing.assert_array_equal(read_bytes(tmp_path, "a.bin", data, 600).pixels, pixels)
            assert "20x30" in str(refusal(tmp_path, "a.bin", data, 599))
        assert Image.MAX_IMAGE_PIXELS == 10
        # These hold to Pillow's limit themselves: at least it is said.
        for form in ("TIFF",) if older_than("pillow", "12") else ("TIFF", "WEBP"):
            data = encoded(Image.fromarray(pixels), form)
            assert "larger than Pillow decodes" in str(refusal(tmp_path, "a.bin", data, 600))


def test_ninety_megapixels_are_read_in_silence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "large.png"
    Image.new("1", (10_000, 9_000), 1).save(path)
    image = read(path)
    assert image.size == (9_000, 10_000)
    assert image.pixels[::1000, ::1000].min() == 255
    assert capfd.readouterr() == ("", "")
    path.write_bytes(png_header_only(13_000, 14_000))
    with pytest.raises(ImageError, match="13000x14000"):
        read(path)


def test_file_far_larger_than_any_picture_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "sparse.tif"
    with path.open("wb") as stream:
        stream.truncate(10**12)
    with pytest.raises(ImageError, match=r"holds 1000\.0 GB"):
        read(path)


def test_threads_read_what_one_thread_reads(tmp_path: Path) -> None:
    files = []
    for index in range(24):
        path = tmp_path / f"{index}.png"
        Image.fromarray(scene(20 + index, 30)).save(path)
        files.append(as_file(path))
    alone = [read_image(file, max_pixels=10**6).sha256 for file in files]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda file: read_image(file, max_pixels=10**6), files))
    assert [image.sha256 for image in together] == alone
    assert [image.size.height for image in together] == list(range(20, 44))


def warn_once(seen: list[str], label: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with quiet():
            warnings.warn(f"{label} inside", UserWarning, stacklevel=1)
        warnings.warn(f"{label} outside", UserWarning, stacklevel=1)
    seen.extend(str(entry.message) for entry in caught)


def test_warnings_are_ignored_inside_and_shown_outside() -> None:
    seen: list[str] = []
    warn_once(seen, "a")
    warn_once(seen, "b")
    assert seen == ["a outside", "b outside"]


def test_other_threads_keep_their_warnings() -> None:
    inside, done = threading.Event(), threading.Event()

    def reader() -> None:
        with quiet():
            inside.set()
            done.wait(5)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread = threading.Thread(target=reader)
        thread.start()
        assert inside.wait(5)
        warnings.warn("from elsewhere", UserWarning, stacklevel=1)
        done.set()
        thread.join()
    assert [str(entry.message) for entry in caught] == ["from elsewhere"]


def test_reading_leaks_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = ImageFile.ImageFile.load

    def warning_load(self: ImageFile.ImageFile) -> object:
        warnings.warn("odd metadata", UserWarning, stacklevel=2)
        return load(self)

    monkeypatch.setattr(ImageFile.ImageFile, "load", warning_load)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_bytes(tmp_path, "a.bmp", encoded(Image.fromarray(scene(8, 8)), "BMP"))
        Image.open(tmp_path / "a.bmp").load()
    assert [str(entry.message) for entry in caught] == ["odd metadata"]
