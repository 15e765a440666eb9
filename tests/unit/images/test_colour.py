"""Every mode and colour profile to sRGB, with values worked by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.domain import RgbImage
from attnviz.errors import ImageError
from attnviz.images.read import read_image
from attnviz.images.values import to_bytes
from tests.helpers.pictures import (
    as_file,
    encoded,
    grey_ink_profile,
    linear_grey_profile,
    scene,
    srgb_profile,
    swapped_profile,
)


def read(folder: Path, data: bytes) -> RgbImage:
    path = folder / "a.bin"
    path.write_bytes(data)
    return read_image(as_file(path), max_pixels=10**6)


def one_colour(image: RgbImage) -> tuple[int, int, int]:
    colours = np.unique(image.pixels.reshape(-1, 3), axis=0)
    assert len(colours) == 1
    return tuple(int(value) for value in colours[0])


@pytest.mark.parametrize("kind", ["I;16 PNG", "I;16 TIFF", "I;16B TIFF", "I TIFF", "I;16 PPM"])
def test_sixteen_bit_ramp_keeps_its_grey_levels(tmp_path: Path, kind: str) -> None:
    mode, form = kind.split()
    eight = np.arange(256, dtype=np.uint8).reshape(8, 32)
    stored = {"I;16": "<u2", "I;16B": ">u2", "I": "<i4"}[mode]
    image = Image.frombytes(mode, (32, 8), (eight.astype(stored) * 257).astype(stored).tobytes())
    result = read(tmp_path, encoded(image, form))
    np.testing.assert_array_equal(result.pixels, np.repeat(eight[:, :, None], 3, axis=2))
    assert result.notes == ("16-bit grey, scaled by 1/257",)


def test_sixteen_bits_are_rounded_to_the_nearest_level() -> None:
    values = np.array([[0, 128, 129, 385, 386, 65535]], dtype=np.uint16)
    assert to_bytes(values, None).values.tolist() == [[0, 0, 1, 1, 2, 255]]


@pytest.mark.parametrize("values", [[[-1, 3]], [[0, 65536]]])
def test_integers_beyond_sixteen_bits_are_refused(tmp_path: Path, values: list[list[int]]) -> None:
    data = encoded(Image.fromarray(np.array(values, dtype=np.int32)), "TIFF")
    with pytest.raises(ImageError, match=r"a\.bin has integer values from"):
        read(tmp_path, data)


@pytest.mark.parametrize(
    ("values", "expected", "note"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255], "float values 0..1 times 255"),
        ([0.0, 0.25, 0.999], [0, 64, 255], "float values 0..1 times 255"),
        ([0.0, 1.4, 255.0], [0, 1, 255], "float values 0..255 taken as they are"),
    ],
)
def test_float_picture(tmp_path: Path, values: list[float], expected: list[int], note: str) -> None:
    result = read(tmp_path, encoded(Image.fromarray(np.array([values], dtype=np.float32)), "TIFF"))
    assert result.pixels[0, :, 1].tolist() == expected
    assert result.notes == (note,)


@pytest.mark.parametrize("bad", [-0.01, 255.5, float("nan"), float("inf")])
def test_float_values_without_a_meaning_are_refused(tmp_path: Path, bad: float) -> None:
    data = encoded(Image.fromarray(np.array([[0.5, bad]], dtype=np.float32)), "TIFF")
    with pytest.raises(ImageError, match="has float values"):
        read(tmp_path, data)


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("1", 1, (255, 255, 255)),
        ("L", 77, (77, 77, 77)),
        ("RGB", (10, 20, 30), (10, 20, 30)),
        ("CMYK", (0, 255, 255, 0), (255, 0, 0)),
    ],
)
def test_plain_modes(
    tmp_path: Path, mode: str, colour: object, expected: tuple[int, int, int]
) -> None:
    result = read(tmp_path, encoded(Image.new(mode, (4, 4), colour), "TIFF"))
    assert one_colour(result) == expected
    assert len(result.notes) == (1 if mode == "CMYK" else 0)


def test_cmyk_jpeg_is_not_inverted(tmp_path: Path) -> None:
    data = encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=100)
    assert np.abs(np.subtract(one_colour(read(tmp_path, data)), (255, 0, 0))).max() <= 2


def test_palette_keeps_its_colours(tmp_path: Path) -> None:
    palette = Image.fromarray(scene(16, 16)).quantize(50)
    result = read(tmp_path, encoded(palette, "PNG"))
    np.testing.assert_array_equal(result.pixels, np.asarray(palette.convert("RGB")))
    assert result.notes == ()


def test_alpha_is_laid_on_white(tmp_path: Path) -> None:
    # 100 at alpha 51/255 = 1/5 on white: 100/5 + 255 * 4/5 = 224
    half = Image.new("RGBA", (4, 4), (100, 0, 255, 51))
    result = read(tmp_path, encoded(half, "PNG"))
    assert one_colour(result) == (224, 204, 255)
    assert result.notes == ("transparency laid on white",)
    grey = read(tmp_path, encoded(Image.new("LA", (4, 4), (100, 51)), "PNG"))
    assert one_colour(grey) == (224, 224, 224)


def test_alpha_that_hides_nothing_changes_nothing(tmp_path: Path) -> None:
    pixels = scene(9, 7)
    opaque = Image.fromarray(pixels).convert("RGBA")
    result = read(tmp_path, encoded(opaque, "PNG"))
    np.testing.assert_array_equal(result.pixels, pixels)
    assert result.notes == ()


@pytest.mark.parametrize(
    ("mode", "colour", "transparency"),
    [("P", 3, 3), ("P", 3, bytes([255, 255, 255, 0])), ("L", 9, 9), ("RGB", (1, 2, 3), (1, 2, 3))],
)
def test_transparent_colour_becomes_white(
    tmp_path: Path, mode: str, colour: object, transparency: object
) -> None:
    image = Image.new(mode, (4, 4), colour)
    if mode == "P":
        image.putpalette(range(30))
    result = read(tmp_path, encoded(image, "PNG", transparency=transparency))
    assert one_colour(result) == (255, 255, 255)
    assert result.notes == ("transparency laid on white",)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P"])
def test_embedded_profile_is_followed(tmp_path: Path, mode: str) -> None:
    image = Image.new("RGB", (4, 4), (255, 0, 0)).convert(mode)
    result = read(tmp_path, encoded(image, "PNG", icc_profile=swapped_profile()))
    assert np.abs(np.subtract(one_colour(result), (0, 255, 0))).max() <= 1
    assert len(result.notes) == 1
    assert result.notes[0].startswith("colours converted from xRGB")


def test_srgb_profile_leaves_every_bit(tmp_path: Path) -> None:
    pixels = scene(32, 32)
    data = encoded(Image.fromarray(pixels), "PNG", icc_profile=srgb_profile())
    result = read(tmp_path, data)
    np.testing.assert_array_equal(result.pixels, pixels)
    assert result.notes == ()


def test_grey_profile_is_followed(tmp_path: Path) -> None:
    # Half the light: 1.055 * 0.5 ** (1 / 2.4) - 0.055 = 0.7354, times 255 = 187.5
    image = Image.new("L", (4, 4), 128)
    result = read(tmp_path, encoded(image, "PNG", icc_profile=linear_grey_profile()))
    assert np.abs(np.subtract(one_colour(result), 188)).max() <= 1


def test_grey_picture_under_an_rgb_profile_stays_grey(tmp_path: Path) -> None:
    image = Image.new("L", (4, 4), 128)
    result = read(tmp_path, encoded(image, "PNG", icc_profile=swapped_profile()))
    assert np.abs(np.subtract(one_colour(result), 128)).max() <= 1


def test_cmyk_goes_through_its_profile(tmp_path: Path) -> None:
    # This cyan ink is a grey of L* = 50: Y = ((50 + 16) / 116)^3 = 0.1842, in sRGB 119.
    image = Image.new("CMYK", (4, 4), (255, 0, 0, 0))
    result = read(tmp_path, encoded(image, "TIFF", icc_profile=grey_ink_profile()))
    assert np.abs(np.subtract(one_colour(result), 119)).max() <= 2
    assert result.notes == ("colours converted from made by hand to sRGB",)


@pytest.mark.parametrize(
    "profile",
    [b"garbage", srgb_profile()[:200], grey_ink_profile()],
    ids=["garbage", "cut off", "of ink"],  # profiles hold the time: processes would differ
)
def test_profile_that_cannot_be_used_is_ignored_and_said(tmp_path: Path, profile: bytes) -> None:
    pixels = scene(8, 8)
    result = read(tmp_path, encoded(Image.fromarray(pixels), "TIFF", icc_profile=profile))
    np.testing.assert_array_equal(result.pixels, pixels)
    assert result.notes == ("its colour profile cannot be used and was ignored",)


def test_cmyk_under_an_rgb_profile_goes_by_the_plain_formula(tmp_path: Path) -> None:
    image = Image.new("CMYK", (4, 4), (0, 255, 255, 0))
    result = read(tmp_path, encoded(image, "TIFF", icc_profile=srgb_profile()))
    assert one_colour(result) == (255, 0, 0)
    assert len(result.notes) == 2


def test_lab_tiff_is_converted(tmp_path: Path) -> None:
    lab = Image.merge("LAB", [Image.new("L", (4, 4), value) for value in (255, 128, 128)])
    assert min(one_colour(read(tmp_path, encoded(lab, "TIFF")))) >= 252
