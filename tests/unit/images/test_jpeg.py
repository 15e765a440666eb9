"""JPEG files: inks without Adobe's marker, and metadata that Pillow cannot use."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.errors import ImageError
from attnviz.images.jpeg import without_metadata
from attnviz.images.read import read_image
from tests.helpers.pictures import as_file, encoded, scene


def read(folder: Path, data: bytes):
    path = folder / "a.jpg"
    path.write_bytes(data)
    return read_image(as_file(path), max_pixels=10**6)


def without_adobe(data: bytes) -> bytes:
    start = data.index(b"\xff\xee")
    (length,) = struct.unpack_from(">H", data, start + 2)
    return data[:start] + data[start + 2 + length :]


def test_inks_without_adobes_marker_are_not_inverted(tmp_path: Path) -> None:
    # Pillow writes inverted inks under Adobe's marker: what it is given is stored as 255 - v.
    stored_red = encoded(Image.new("CMYK", (16, 16), (255, 0, 0, 255)), "JPEG", quality=100)
    plain = read(tmp_path, without_adobe(stored_red)).pixels
    assert np.abs(plain.reshape(-1, 3).astype(int) - (255, 0, 0)).max() <= 2
    marked = read(tmp_path, stored_red).pixels
    assert marked.max() <= 2  # all of black


@pytest.mark.parametrize(
    "segment",
    [
        b"\xff\xe2\x00\x0fICC_PROFILE\0\x01",
        b"\xff\xe0\x00\x07JFIF\0",
        b"\xff\xee\x00\x08Adobe\0",
    ],
    ids=["profile", "JFIF", "Adobe"],
)
def test_a_short_segment_does_not_make_a_file_damaged(tmp_path: Path, segment: bytes) -> None:
    data = encoded(Image.fromarray(scene(16, 24)), "JPEG")
    broken = data[:2] + segment + data[2:]
    np.testing.assert_array_equal(read(tmp_path, broken).pixels, read(tmp_path, data).pixels)


def test_a_cut_header_is_still_damage(tmp_path: Path) -> None:
    data = encoded(Image.fromarray(scene(16, 24)), "JPEG")
    for cut in (4, 40, 200, data.index(b"\xff\xda") + 4):
        without_metadata(data[:cut])
        with pytest.raises(ImageError, match="damaged"):
            read(tmp_path, data[:cut])
