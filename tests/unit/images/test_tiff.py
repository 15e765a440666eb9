"""Bands of TIFF files in every packing, as the numbers that were put in."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from attnviz.errors import ImageError
from attnviz.images.read import read_image
from attnviz.images.tiff import read_bands, tiff_layout
from tests.helpers.pictures import as_file, scene
from tests.helpers.tiff import BLACK_IS_ZERO, RGB, tiff

TYPES = ("u1", "u2", "u4", "i2", "f4", "f8")


def values_of(kind: str, height: int = 13, width: int = 11, bands: int = 5) -> np.ndarray:
    random = np.random.default_rng(0)
    if kind.startswith("f"):
        return random.normal(0, 100, (height, width, bands)).astype(kind)
    limits = np.iinfo(kind)
    return random.integers(limits.min, limits.max, (height, width, bands), kind, endpoint=True)


def reread(data: bytes, chosen: list[int]) -> np.ndarray:
    layout = tiff_layout(data)
    assert layout is not None
    assert layout.is_numeric
    return read_bands(layout, data, chosen)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("compression", [1, 8, 5, 32773])
def test_numbers_come_back_whatever_the_packing(kind: str, compression: int) -> None:
    values = values_of(kind)
    kinds = [1, 2] + ([3] if kind.startswith("f") else [])
    for order, planar, tiled, predictor in itertools.product(
        "<>", (False, True), (False, True), kinds if compression in (8, 5) else [1]
    ):
        data = tiff(
            values,
            BLACK_IS_ZERO,
            order=order,
            planar=planar,
            tiled=tiled,
            block=(4, 16) if tiled else (5, 0),
            compression=compression,
            predictor=predictor,
        )
        result = reread(data, [4, 0, 2])
        assert result.dtype == np.dtype(kind)
        np.testing.assert_array_equal(result, values[:, :, [4, 0, 2]])


def test_a_big_tiff_is_read_as_a_small_one() -> None:
    from io import BytesIO

    from PIL import Image

    pixels = values_of("u1", bands=3)
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "TIFF", big_tiff=True)
    np.testing.assert_array_equal(reread(stream.getvalue(), [2, 1, 0]), pixels[:, :, ::-1])


def test_a_file_that_is_cut_says_how_many_bytes_are_there() -> None:
    data = tiff(values_of("u2"), BLACK_IS_ZERO)
    with pytest.raises(ValueError, match=r"1,424 bytes where a strip or tile has 1,430"):
        reread(data[:-6], [0])


def test_tiles_of_an_impossible_size_are_damage_and_not_memory() -> None:
    data = tiff(values_of("u1"), BLACK_IS_ZERO, tiled=True, block=(16, 16), compression=8)
    for side in (0, 1 << 20):
        layout = tiff_layout(data)
        broken = type(layout)(**{**vars(layout), "block": type(layout.block)(side, 1 << 20)})
        with pytest.raises(ValueError, match="impossible size"):
            read_bands(broken, data, [0])


@pytest.mark.parametrize("damage", ["bands", "bits", "offsets"])
def test_a_layout_that_contradicts_itself_is_left_to_pillow(damage: str, tmp_path: Path) -> None:
    changes = {"bands": {277: [0]}, "bits": {258: [8, 8]}, "offsets": {}}[damage]
    data = tiff(values_of("u1", bands=3), RGB, tags=changes)
    if damage == "offsets":
        data = data[:10] + b"\xff" * 40 + data[50:]
    assert tiff_layout(data) is None
    path = tmp_path / "a.tif"
    path.write_bytes(data)
    with pytest.raises(ImageError, match="damaged"):
        read_image(as_file(path), max_pixels=10**6)


def test_sixteen_bit_colours_are_rounded_and_not_cut(tmp_path: Path) -> None:
    # 255 is 65535 / 257; 384 lies nearer to 1 (257) than to 2, 386 nearer to 2 (514).
    values = np.zeros((1, 3, 3), np.uint16)
    values[0, :, 0] = (65535, 385, 386)
    path = tmp_path / "a.tif"
    path.write_bytes(tiff(values, RGB))
    image = read_image(as_file(path), max_pixels=100)
    assert image.pixels[0, :, 0].tolist() == [255, 1, 2]
    assert image.notes == ("16 bits a channel, scaled by 1/257",)


def test_white_is_zero_counts_with_sixteen_bits_too(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    path.write_bytes(tiff(np.array([[[0], [65535], [257 * 155]]], np.uint16), 0))
    assert read_image(as_file(path), max_pixels=100).pixels[0, :, 0].tolist() == [255, 0, 100]


def test_signed_bytes_are_not_taken_for_unsigned_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    path.write_bytes(tiff(np.array([[[-1], [5]]], np.int8), BLACK_IS_ZERO))
    with pytest.raises(ImageError, match="integer values from -1 to 5"):
        read_image(as_file(path), max_pixels=100)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_bands_are_turned_upright(tmp_path: Path, orientation: int) -> None:
    from tests.helpers.pictures import stored_for

    upright = scene(12, 8)
    wide = stored_for(orientation, upright).astype(np.uint16) * 257
    path = tmp_path / "a.tif"
    path.write_bytes(tiff(wide, RGB, tags={274: [orientation]}))
    np.testing.assert_array_equal(read_image(as_file(path), max_pixels=100).pixels, upright)


def test_premultiplied_alpha_of_sixteen_bits_is_laid_on_white(tmp_path: Path) -> None:
    # A colour of 100 at an alpha of 1/5 is stored as 20; on white 20 + 255 * 4/5 = 224.
    pixel = np.array([[[20, 0, 51, 51]]], np.uint16) * 257
    path = tmp_path / "a.tif"
    path.write_bytes(tiff(pixel, RGB, extra=[1]))
    image = read_image(as_file(path), max_pixels=100)
    assert image.pixels[0, 0].tolist() == [224, 204, 255]
    straight = np.array([[[100, 0, 255, 51]]], np.uint16) * 257
    path.write_bytes(tiff(straight, RGB, extra=[2]))
    image = read_image(as_file(path), max_pixels=100)
    assert image.pixels[0, 0].tolist() == [224, 204, 255]
    assert image.notes == ("16 bits a channel, scaled by 1/257", "transparency laid on white")
