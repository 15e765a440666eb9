"""PNG metadata: none of it makes a file damaged, and none of it fills the memory."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.domain import RgbImage
from attnviz.errors import ImageError
from attnviz.images.png import PROFILE_BYTES, clean
from attnviz.images.read import read_image
from tests.helpers.pictures import (
    as_file,
    encoded,
    exif_with_orientation,
    scene,
    srgb_profile,
    swapped_profile,
)

PIXELS = scene(16, 24)
WHOLE = encoded(Image.fromarray(PIXELS), "PNG")


def chunk(kind: bytes, content: bytes, checksum: int | None = None) -> bytes:
    checksum = zlib.crc32(kind + content) if checksum is None else checksum
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def with_chunk(*made: bytes, at_end: bool = False) -> bytes:
    """The file with chunks after its header, or after its pixels."""
    place = len(WHOLE) - 12 if at_end else 33
    return WHOLE[:place] + b"".join(made) + WHOLE[place:]


def read(folder: Path, data: bytes) -> RgbImage:
    path = folder / "a.png"
    path.write_bytes(data)
    return read_image(as_file(path), max_pixels=10**8)


def padded(profile: bytes, size: int) -> bytes:
    return struct.pack(">I", size) + profile[4:] + bytes(size - len(profile))


LARGE = zlib.compress(b"x" * 3_000_000)
BOMB = zlib.compress(bytes(70_000_000))


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(
    "made",
    [
        chunk(b"zTXt", b"parameters\0\0" + LARGE),
        chunk(b"iTXt", b"parameters\0\x01\0en\0\0" + LARGE),
        chunk(b"tEXt", b"parameters\0" + b"x" * 3_000_000),
        chunk(b"zTXt", b"parameters\0\0" + BOMB),
        chunk(b"zTXt", b"parameters\0\x05what is this"),
        chunk(b"tEXt", b"checksum\0wrong", checksum=1),
        chunk(b"eXIf", b"checksum wrong", checksum=1),
        chunk(b"gAMA", b"\0"),
        chunk(b"cHRM", b"\0"),
        chunk(b"sRGB", b""),
        chunk(b"pHYs", b"\0"),
        chunk(b"iCCP", b""),
        chunk(b"iCCP", b"name\0\x07" + LARGE),
        chunk(b"iCCP", b"name\0\0not zlib"),
        b"".join(chunk(b"tEXt", b"a\0" + b"x" * 1_000_000) for _ in range(80)),
    ],
    ids=lambda made: made[4:8].decode(),
)
def test_metadata_does_not_make_a_file_damaged(tmp_path: Path, made: bytes, at_end: bool) -> None:
    image = read(tmp_path, with_chunk(made, at_end=at_end))
    np.testing.assert_array_equal(image.pixels, PIXELS)
    assert image.notes == ()


def test_a_profile_of_2_mb_is_followed(tmp_path: Path) -> None:
    for profile, notes in ((srgb_profile(), 0), (swapped_profile(), 1)):
        large = padded(profile, 2_000_000)
        data = with_chunk(chunk(b"iCCP", b"scanner\0\0" + zlib.compress(large)))
        image = read(tmp_path, data)
        small = encoded(Image.fromarray(PIXELS), "PNG", icc_profile=profile)
        np.testing.assert_array_equal(image.pixels, read(tmp_path, small).pixels)
        assert len(image.notes) == notes


def test_memory_stays_bounded_whatever_the_chunks_unpack_to(tmp_path: Path) -> None:
    bomb = chunk(b"iCCP", b"scanner\0\0" + BOMB) + chunk(b"zTXt", b"a\0\0" + BOMB) * 20
    path = tmp_path / "a.png"
    path.write_bytes(with_chunk(bomb))
    tracemalloc.start()
    image = read_image(as_file(path), max_pixels=10**6)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(image.pixels, PIXELS)
    assert image.notes == ("its colour profile holds more than 32 MB and was ignored",)
    # zlib's buffer grows by doubling.
    assert peak < 3 * PROFILE_BYTES


def test_what_pillow_reads_is_left_as_it_is() -> None:
    text = chunk(b"tEXt", b"Comment\0hello") + chunk(b"zTXt", b"More\0\0" + zlib.compress(b"x" * 9))
    for data in (WHOLE, with_chunk(text), with_chunk(text, at_end=True), WHOLE[:60], WHOLE[:20]):
        assert clean(data).data is data


def test_orientation_and_transparency_survive_the_cleaning(tmp_path: Path) -> None:
    exif = exif_with_orientation(6)
    stream = io.BytesIO()
    Image.fromarray(PIXELS).save(stream, "PNG", exif=exif, transparency=(0, 0, 200))
    data = stream.getvalue()
    before = read(tmp_path, data)
    bad = chunk(b"zTXt", b"parameters\0\0" + LARGE)
    after = read(tmp_path, data[:33] + bad + data[33:])
    assert after.size == (24, 16)
    np.testing.assert_array_equal(before.pixels, after.pixels)
    assert "transparency laid on white" in after.notes


def test_damaged_pixels_are_still_damage(tmp_path: Path) -> None:
    at = WHOLE.index(b"IDAT") + 8
    for data in (WHOLE[: at + 30], WHOLE[:at] + bytes(20) + WHOLE[at + 20 :]):
        with pytest.raises(ImageError, match="damaged"):
            read(tmp_path, data)
