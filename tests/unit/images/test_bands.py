"""Images of more bands than RGB: what the file calls its bands decides, or the caller."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.domain import RgbImage
from attnviz.errors import ImageError
from attnviz.images.read import read_image
from tests.helpers.pictures import (
    as_file,
    encoded,
    png_of_sixteen_bits,
    scene,
    swapped_profile,
)
from tests.helpers.tiff import BLACK_IS_ZERO, RGB, tiff

HEIGHT, WIDTH = 12, 20
FIRST_THREE = (
    "4 bands, of which the first three are taken as red, green and blue; --bands takes others"
)
SWAPPED = "bands 3, 2, 1 taken as red, green and blue"


def read(folder: Path, data: bytes, suffix: str = "", **options) -> RgbImage:
    path = folder / f"a{suffix}"
    path.write_bytes(data)
    return read_image(as_file(path), max_pixels=10**6, **options)


def with_infrared() -> np.ndarray:
    """Red, green, blue, and a fourth band that as alpha would hide the left half."""
    ramp = np.tile(np.linspace(0, 255, WIDTH).astype(np.uint8), (HEIGHT, 1))
    return np.dstack([scene(HEIGHT, WIDTH), ramp])


@pytest.mark.parametrize("extra", [None, [0]])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_a_fourth_band_is_alpha_only_where_the_file_says_so(tmp_path, extra, kind) -> None:
    values = with_infrared()
    wide = values.astype(kind) * kind(257 if kind is np.uint16 else 1)
    image = read(tmp_path, tiff(wide, RGB, extra=extra))
    np.testing.assert_array_equal(image.pixels, values[:, :, :3])
    assert image.notes[0] == FIRST_THREE
    said = read(tmp_path, tiff(wide, RGB, extra=[2]))
    assert "transparency laid on white" in said.notes
    assert (said.pixels[:, 0] == 255).all()


def test_bands_without_names_are_refused_with_their_number_and_bits(tmp_path) -> None:
    for values in (with_infrared(), with_infrared().astype(np.uint16)):
        with pytest.raises(ImageError) as caught:
            read(tmp_path, tiff(values, BLACK_IS_ZERO, extra=[0, 0, 0]), ".tif")
        bits = values.dtype.itemsize * 8
        assert f"a.tif has 4 bands of {bits} bits and does not say which are red" in str(
            caught.value
        )
        assert "--bands 3,2,1" in caught.value.hint


def test_a_file_called_h_is_named_too(tmp_path) -> None:
    path = tmp_path / "h"
    path.write_bytes(tiff(with_infrared(), BLACK_IS_ZERO))
    with contextlib.chdir(tmp_path), pytest.raises(ImageError, match=r"^h has 4 bands of 8 bits"):
        read_image(as_file(Path("h")), max_pixels=10**6)


def test_thirteen_bands_of_a_satellite_are_read_by_the_bands_that_are_named(tmp_path) -> None:
    values = np.random.default_rng(0).integers(0, 10_000, (9, 7, 13)).astype(np.uint16)
    data = tiff(values, BLACK_IS_ZERO, planar=True, compression=8, predictor=2)
    image = read(tmp_path, data, bands=(4, 3, 2), value_range=(0.0, 10_200.0))
    np.testing.assert_array_equal(image.pixels, np.rint(values[:, :, [3, 2, 1]] / 40))
    assert image.notes == (
        "bands 4, 3, 2 taken as red, green and blue",
        "values from 0 to 10200 stretched to 0..255",
    )


def test_grey_with_one_band_more_is_grey_and_said(tmp_path) -> None:
    values = with_infrared()[:, :, [0, 3]]
    image = read(tmp_path, tiff(values, BLACK_IS_ZERO, extra=[0]))
    np.testing.assert_array_equal(image.pixels[:, :, 1], values[:, :, 0])
    assert image.notes == ("2 bands, of which the first is taken as grey; --bands takes others",)


@pytest.mark.parametrize("form", ["PNG", "TIFF", "BMP", "PNG 16", "TIFF 16"])
def test_bands_of_any_file_can_be_exchanged(tmp_path, form) -> None:
    pixels = scene(HEIGHT, WIDTH)
    if form == "TIFF 16":
        data = tiff(pixels.astype(np.uint16) * 257, RGB)
    elif form == "PNG 16":
        data = png_of_sixteen_bits(pixels.astype(np.uint16) * 257)
    else:
        data = encoded(Image.fromarray(pixels), form)
    image = read(tmp_path, data, bands=(3, 2, 1))
    np.testing.assert_array_equal(image.pixels, pixels[:, :, ::-1])
    assert image.notes[0] == SWAPPED


def test_one_band_is_grey_and_alpha_still_counts_beside_chosen_bands(tmp_path) -> None:
    values = with_infrared()
    data = encoded(Image.fromarray(values), "PNG")
    infrared = read(tmp_path, data, bands=(4, 4, 4))
    np.testing.assert_array_equal(infrared.pixels, np.repeat(values[:, :, 3:], 3, axis=2))
    assert infrared.notes == ("band 4 taken as grey",)
    swapped = read(tmp_path, data, bands=(3, 2, 1))
    assert swapped.notes == (SWAPPED, "transparency laid on white")
    assert (swapped.pixels[:, 0] == 255).all()
    assert (swapped.pixels[:, -1] == values[:, -1, [2, 1, 0]]).all()


@pytest.mark.parametrize(
    ("data", "bands", "message"),
    [
        (encoded(Image.new("L", (4, 4)), "PNG"), (3, 2, 1), "has 1 band, and --bands names band 3"),
        (encoded(Image.new("RGB", (4, 4)), "JPEG"), (4, 3, 2), "has 3 bands, and --bands names"),
        (tiff(with_infrared(), RGB), (5, 2, 1), "has 4 bands, and --bands names band 5"),
        (encoded(Image.new("CMYK", (4, 4)), "TIFF"), (3, 2, 1), r"holds inks \(CMYK\)"),
        (encoded(Image.new("CMYK", (4, 4)), "JPEG"), (3, 2, 1), r"holds inks \(CMYK\)"),
    ],
    ids=["grey", "jpeg", "tiff", "cmyk tiff", "cmyk jpeg"],
)
def test_bands_that_are_not_there_are_named(tmp_path, data, bands, message) -> None:
    with pytest.raises(ImageError, match=rf"{tmp_path}/a {message}") as caught:
        read(tmp_path, data, bands=bands)
    assert caught.value.hint


def test_a_profile_says_nothing_of_bands_that_the_caller_chose(tmp_path) -> None:
    data = encoded(Image.new("RGB", (4, 4), (255, 0, 0)), "PNG", icc_profile=swapped_profile())
    assert read(tmp_path, data).pixels[0, 0].tolist()[1] >= 254
    assert read(tmp_path, data, bands=(1, 2, 3)).pixels[0, 0].tolist() == [255, 0, 0]


def test_jpeg_2000_without_a_channel_definition_has_no_alpha(tmp_path) -> None:
    values = with_infrared()
    data = encoded(Image.fromarray(values), "JPEG2000", irreversible=False)
    assert "transparency laid on white" in read(tmp_path, data, ".jp2").notes
    undefined = data.replace(b"cdef", b"free")
    image = read(tmp_path, undefined, ".jp2")
    np.testing.assert_array_equal(image.pixels, values[:, :, :3])
    assert image.notes == (FIRST_THREE,)
    bare = encoded(Image.fromarray(values), "JPEG2000", irreversible=False, no_jp2=True)
    assert read(tmp_path, bare, ".j2k").notes == (FIRST_THREE,)


def test_targa_of_no_attribute_bits_has_no_alpha(tmp_path) -> None:
    values = with_infrared()
    data = bytearray(encoded(Image.fromarray(values), "TGA"))
    assert "transparency laid on white" in read(tmp_path, bytes(data), ".tga").notes
    data[17] &= 0xF0
    image = read(tmp_path, bytes(data), ".tga")
    np.testing.assert_array_equal(image.pixels, values[:, :, :3])
    assert image.notes == (FIRST_THREE,)
    values[:, :, 3] = 0  # as programs leave it that know no alpha
    data = bytearray(encoded(Image.fromarray(values), "TGA"))
    data[17] &= 0xF0
    assert read(tmp_path, bytes(data), ".tga").notes == ()


def test_what_cannot_be_read_names_its_bands(tmp_path) -> None:
    data = tiff(with_infrared(), RGB, tags={258: [10, 10, 10, 10]})
    with pytest.raises(ImageError, match="has 4 bands of 10 bits, in a form that") as caught:
        read(tmp_path, data)
    assert "8 or 16 bits" in caught.value.hint


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_sixteen_bits_of_a_png_reach_the_range(tmp_path, channels) -> None:
    values = np.random.default_rng(0).integers(0, 2551, (5, 6, channels)).astype(np.uint16)
    if channels in (2, 4):
        values[:, :, -1] = 65535
    image = read(tmp_path, png_of_sixteen_bits(values), value_range=(0.0, 2550.0))
    colours = values[:, :, : 1 if channels == 2 else 3]
    np.testing.assert_array_equal(image.pixels, np.broadcast_to(np.rint(colours / 10), (5, 6, 3)))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_transparent_colour_of_sixteen_bits_becomes_white(tmp_path, channels) -> None:
    import struct
    import zlib

    values = np.full((2, 2, channels), 1000, np.uint16)
    values[0, 0] = 1001
    data = png_of_sixteen_bits(values)
    kind, key = b"tRNS", struct.pack(f">{channels}H", *[1001] * channels)
    chunk = struct.pack(">I", len(key)) + kind + key + struct.pack(">I", zlib.crc32(kind + key))
    image = read(tmp_path, data[:33] + chunk + data[33:])
    assert image.pixels[:, :, 0].tolist() == [[255, 4], [4, 4]]
    assert "transparency laid on white" in image.notes
