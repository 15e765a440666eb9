"""Which pixels of a mask are object, in every mode that masks come in."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from attnviz.domain import Size
from attnviz.errors import ImageError
from attnviz.images.mask import read_mask

ROW = Size(1, 4)


def row(mode: str, values) -> Image.Image:
    image = Image.new(mode, (4, 1))
    image.putdata(values)
    return image


def palette(values) -> Image.Image:
    """Indices whose colours say something else: index 0 is white, 1 black."""
    image = row("P", values)
    image.putpalette([255, 255, 255, 0, 0, 0, *range(254 * 3 % 256), *[7] * (254 * 3 - 250)][:768])
    return image


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (row("1", [0, 255, 0, 255]), [0, 1, 0, 1]),
        (row("L", [0, 1, 255, 0]), [0, 1, 1, 0]),
        (row("I;16", [0, 1, 40000, 0]), [0, 1, 1, 0]),
        (row("RGB", [(0, 0, 0), (0, 0, 1), (255, 0, 0), (0, 0, 0)]), [0, 1, 1, 0]),
        (row("RGBA", [(9, 9, 9, 0), (0, 0, 0, 1), (0, 0, 0, 255), (1, 1, 1, 0)]), [0, 1, 1, 0]),
        (row("LA", [(9, 0), (0, 1), (0, 255), (9, 0)]), [0, 1, 1, 0]),
        (palette([0, 1, 255, 15]), [0, 1, 0, 1]),
    ],
    ids=lambda value: getattr(value, "mode", ""),
)
def test_object_pixels(image, expected, tmp_path):
    image.save(tmp_path / "m.png")
    mask = read_mask(tmp_path / "m.png", ROW)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [[bool(value) for value in expected]]


def test_what_is_no_mask_of_the_picture_is_refused(tmp_path):
    path = tmp_path / "m.png"
    row("L", [0, 1, 0, 0]).save(path)
    with pytest.raises(ImageError, match=r"m\.png is 1x4 pixels large, its picture 2x4"):
        read_mask(path, Size(2, 4))
    row("L", [0, 0, 0, 0]).save(path)
    with pytest.raises(ImageError, match="holds no object"):
        read_mask(path, ROW)
    path.write_bytes(path.read_bytes()[:43])
    with pytest.raises(ImageError, match="cannot be read"):
        read_mask(path, ROW)
    path.write_text("no picture")
    with pytest.raises(ImageError, match="cannot be read"):
        read_mask(path, ROW)
