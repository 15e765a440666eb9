"""Damaged files: each is read or refused with an ImageError, quickly and quietly.

Hundreds of them in the quick run, thousands in ``make test-all``.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from attnviz.domain import RgbImage
from attnviz.errors import ImageError
from attnviz.images.formats import SUFFIXES
from attnviz.images.read import read_image
from tests.helpers.damage import damage
from tests.helpers.pictures import (
    as_file,
    encoded,
    exif_with_orientation,
    grey_ink_profile,
    linear_grey_profile,
    png_of_sixteen_bits,
)
from tests.helpers.tiff import BLACK_IS_ZERO, RGB, tiff

FILES_A_SEED = 80
LIMIT = 100_000


def seeds() -> dict[str, bytes]:
    """One whole file of each kind, small but with everything that can break in it."""
    noise = np.random.default_rng(0).integers(0, 256, (13, 17, 4), dtype=np.uint8)
    rgba = Image.fromarray(noise)
    rgb, grey = rgba.convert("RGB"), rgba.convert("L")
    more = [rgb.rotate(90 * turn) for turn in (1, 2)]
    extras = {"exif": exif_with_orientation(6), "icc_profile": linear_grey_profile()}
    cmyk = {"icc_profile": grey_ink_profile()}
    files = {
        "jpeg": encoded(grey, "JPEG", **extras),
        "jpeg progressive": encoded(rgb, "JPEG", progressive=True, exif=extras["exif"]),
        "jpeg cmyk": encoded(rgb.convert("CMYK"), "JPEG", **cmyk),
        "mpo": encoded(rgb, "MPO", save_all=True, append_images=more),
        "png": encoded(grey, "PNG", **extras),
        "png alpha": encoded(rgba, "PNG"),
        "png palette": encoded(rgb.quantize(9), "PNG", transparency=bytes(range(9))),
        "png 16 bit": encoded(Image.fromarray(noise.view("<u4").astype("<u2")[:, :, 0]), "PNG"),
        "png animated": encoded(rgb, "PNG", save_all=True, append_images=more),
        "gif": encoded(rgb.quantize(16), "GIF", transparency=3),
        "gif animated": encoded(rgb, "GIF", save_all=True, append_images=more),
        "bmp": encoded(rgb, "BMP"),
        "bmp palette": encoded(rgb.quantize(16), "BMP"),
        "tiff": encoded(rgb, "TIFF", exif=extras["exif"]),
        "tiff lzw": encoded(rgba, "TIFF", compression="tiff_lzw"),
        "tiff jpeg": encoded(rgb, "TIFF", compression="jpeg"),
        "tiff float": encoded(Image.fromarray(noise[:, :, 0] / np.float32(255)), "TIFF"),
        "tiff pages": encoded(rgb, "TIFF", save_all=True, append_images=more),
        "tiff cmyk": encoded(rgb.convert("CMYK"), "TIFF", **cmyk),
        "tiff 16 bit colours": tiff(noise[:, :, :3].astype("u2") * 257, RGB, block=(5, 0)),
        "tiff bands": tiff(noise, BLACK_IS_ZERO, planar=True, compression=8, predictor=2),
        "tiff tiles": tiff(
            noise / np.float32(255),
            RGB,
            extra=[2],
            tiled=True,
            block=(16, 16),
            compression=5,
            predictor=3,
            order=">",
        ),
        "png 16 bit colours": png_of_sixteen_bits(noise.astype("u2") * 257),
        "webp": encoded(rgba, "WEBP", exif=extras["exif"]),
        "webp lossless": encoded(rgb, "WEBP", lossless=True),
        "webp animated": encoded(rgb, "WEBP", save_all=True, append_images=more),
        "ppm": encoded(rgb, "PPM"),
        "pgm": encoded(grey, "PPM"),
        "pgm text": b"P2\n3 2\n255\n0 1 2\n3 4 255\n",
        "pfm": encoded(Image.fromarray(noise[:, :, 0] / np.float32(255)), "PPM"),
        "jpeg 2000": encoded(rgb, "JPEG2000"),
        "sgi": encoded(rgb, "SGI"),
        "pcx": encoded(rgb, "PCX"),
        "tga": encoded(rgb, "TGA"),
        "qoi": encoded(rgb, "QOI"),
    }
    if "AVIF" in Image.SAVE:
        files["avif"] = encoded(rgb, "AVIF")
    return files


@pytest.fixture(scope="module")
def whole() -> dict[str, bytes]:
    return seeds()


def test_whole_files_are_read(whole: dict[str, bytes], tmp_path: Path) -> None:
    """Else the damaged ones would test nothing but the first check."""
    for name, data in whole.items():
        path = tmp_path / ("a.tga" if name == "tga" else "a")
        path.write_bytes(data)
        bands = (3, 2, 1) if name == "tiff bands" else None
        assert min(read_image(as_file(path), max_pixels=LIMIT, bands=bands).size) >= 2, name


@pytest.mark.parametrize(
    "count",
    [
        FILES_A_SEED // 10,
        pytest.param(FILES_A_SEED, marks=pytest.mark.slow(reason="tries ten times as many files")),
    ],
)
def test_no_damaged_file_gets_past_the_one_error(
    whole: dict[str, bytes], tmp_path: Path, capfd: pytest.CaptureFixture[str], count: int
) -> None:
    before = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, len(Image.OPEN))
    others = list(whole.values())
    suffixes = [suffix for known in SUFFIXES.values() for suffix in known]
    images: list[RgbImage] = []
    refusals: list[ImageError] = []
    slowest = 0.0
    for name, data in whole.items():
        chance = random.Random(name)
        for _ in range(count):
            path = tmp_path / ("damaged" + (".tga" if name == "tga" else chance.choice(suffixes)))
            path.write_bytes(damage(data, chance, others))
            start = time.perf_counter()
            try:
                bands = (3, 2, 1) if name == "tiff bands" else None
                images.append(read_image(as_file(path), max_pixels=LIMIT, bands=bands))
            except ImageError as error:
                refusals.append(error)
            slowest = max(slowest, time.perf_counter() - start)
            path.unlink()
    assert len(images) + len(refusals) >= 25 * count
    assert len(refusals) >= 12.5 * count
    assert all("damaged" in error.message and error.hint for error in refusals)
    assert all(error.message.isprintable() for error in refusals)
    assert all(0 < image.size.height * image.size.width <= LIMIT for image in images)
    assert slowest < 2
    assert before == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, len(Image.OPEN))
    assert list(tmp_path.iterdir()) == []
    # libtiff itself, below Python, writes a line to stderr for some kinds of damage.
    printed, complained = capfd.readouterr()
    assert printed == ""
    assert "Traceback" not in complained
    assert "Warning" not in complained
