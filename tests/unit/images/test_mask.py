"""Which pixels of a mask are object, in every mode that masks come in."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from attnviz.domain import Size
from attnviz.errors import ImageError
from attnviz.images.mask import mask_notes, read_mask
from tests.helpers.pictures import exif_with_orientation

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
        (
            row("RGBA", [(0, 0, 0, 255), (0, 0, 1, 255), (9, 0, 0, 255), (0, 0, 0, 255)]),
            [0, 1, 1, 0],
        ),
        (row("RGBA", [(0, 0, 0, 7), (0, 0, 1, 9), (9, 0, 0, 9), (0, 0, 0, 255)]), [0, 1, 1, 0]),
        (row("RGBA", [(0, 0, 0, 0), (0, 0, 1, 0), (9, 0, 0, 0), (0, 0, 0, 0)]), [0, 1, 1, 0]),
        (row("LA", [(0, 255), (1, 255), (9, 255), (0, 255)]), [0, 1, 1, 0]),
        (palette([0, 1, 255, 15]), [0, 1, 0, 1]),
    ],
    ids=lambda value: getattr(value, "mode", ""),
)
def test_object_pixels(image, expected, tmp_path):
    image.save(tmp_path / "m.png")
    mask = read_mask(tmp_path / "m.png", ROW)
    assert mask.pixels.dtype == np.bool_
    assert mask.pixels.tolist() == [[bool(value) for value in expected]]


@pytest.mark.parametrize(
    ("alpha", "note"),
    [
        ([0, 255, 9, 0], "the mask is read by its alpha channel"),
        ([255] * 4, "the mask is read by its colours, since its alpha channel hides nothing"),
        ([0] * 4, "the mask is read by its colours, since its alpha channel hides everything"),
    ],
)
def test_which_of_alpha_and_colours_was_read_is_said(alpha, note, tmp_path):
    row("LA", [(value, a) for value, a in zip([0, 9, 9, 0], alpha, strict=True)]).save(
        tmp_path / "m.png"
    )
    assert mask_notes(read_mask(tmp_path / "m.png", ROW)) == (note,)
    row("L", [0, 9, 9, 0]).save(tmp_path / "m.png")
    assert mask_notes(read_mask(tmp_path / "m.png", ROW)) == ()


def test_a_transparent_grey_is_alpha_too(tmp_path):
    row("L", [0, 7, 9, 7]).save(tmp_path / "m.png", transparency=7)
    assert read_mask(tmp_path / "m.png", ROW).pixels.tolist() == [[True, False, True, False]]


def test_the_noise_of_jpeg_is_not_an_object(tmp_path):
    object_pixels = np.zeros((32, 32), bool)
    object_pixels[9:20, 5:27] = True
    Image.fromarray(object_pixels.astype(np.uint8) * 255).save(tmp_path / "m.jpg", quality=60)
    assert np.asarray(Image.open(tmp_path / "m.jpg")).astype(bool).sum() > object_pixels.sum()
    mask = read_mask(tmp_path / "m.jpg", Size(32, 32))
    np.testing.assert_array_equal(mask.pixels, object_pixels)
    assert "JPEG" in mask.note


def test_a_mask_is_turned_upright_as_its_image_is(tmp_path):
    row("L", [0, 0, 0, 9]).save(tmp_path / "m.png", exif=exif_with_orientation(6))
    mask = read_mask(tmp_path / "m.png", Size(4, 1))
    assert mask.pixels.tolist() == [[False], [False], [False], [True]]
    with pytest.raises(ImageError, match=r"is 4x1 pixels large, its image 1x4"):
        read_mask(tmp_path / "m.png", ROW)


def test_pixels_of_a_mask_that_are_not_a_number_are_no_object(tmp_path):
    values = np.array([[0, np.nan, 1, 0]], np.float32)
    Image.fromarray(values).save(tmp_path / "m.tif")
    assert read_mask(tmp_path / "m.tif", ROW).pixels.tolist() == [[False, False, True, False]]


def test_what_is_no_mask_of_the_picture_is_refused(tmp_path):
    path = tmp_path / "m.png"
    row("L", [0, 1, 0, 0]).save(path)
    with pytest.raises(ImageError, match=r"m\.png is 1x4 pixels large, its image 2x4"):
        read_mask(path, Size(2, 4))
    row("L", [0, 0, 0, 0]).save(path)
    with pytest.raises(ImageError, match="holds no object"):
        read_mask(path, ROW)
    path.write_bytes(path.read_bytes()[:43])
    with pytest.raises(ImageError, match=r"the mask .*m\.png cannot be read"):
        read_mask(path, ROW)
    path.write_text("not an image")
    with pytest.raises(ImageError, match=r"the mask .*m\.png is text, not an image"):
        read_mask(path, ROW)
    with pytest.raises(ImageError, match=r"the mask .*gone\.png cannot be read: No such file"):
        read_mask(tmp_path / "gone.png", ROW)
