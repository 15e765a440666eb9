"""Images in memory: the model sees what a file of the same pixels gives it; nothing is guessed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import attnviz
from attnviz.errors import AttnvizError, ImageError, UsageError
from tests.helpers.planted import tiny_vit

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 56, 3), np.uint8)
TENSOR = torch.from_numpy(PIXELS).permute(2, 0, 1)


@pytest.fixture(scope="module")
def model():
    return tiny_vit()


@pytest.fixture(scope="module")
def expected(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "x.png"
    Image.fromarray(PIXELS).save(path)
    return attnviz.prepare(path, model)


SAME = {
    "pillow": (Image.fromarray(PIXELS), {}),
    "array": (PIXELS, {}),
    "view": (np.repeat(PIXELS, 2, axis=1)[:, ::2], {}),
    "floats": (PIXELS / 255, {}),
    "float32": ((PIXELS / 255).astype(np.float32), {}),
    "tensor": (TENSOR, {}),
    "tensor of floats": (TENSOR / 255, {"normalised": False}),
    "with a gradient": ((TENSOR / 255).requires_grad_(), {"normalised": False}),
}


@pytest.mark.parametrize("kind", SAME)
def test_the_same_pixels_are_the_same_input(kind, model, expected):
    source, options = SAME[kind]
    prepared = attnviz.prepare(source, model, **options)
    np.testing.assert_array_equal(prepared.tensor, expected.tensor)
    np.testing.assert_array_equal(prepared.image.pixels, PIXELS)
    assert prepared.image.notes == ()
    assert prepared.geometry == expected.geometry


def test_a_normalised_tensor_is_the_input_to_the_bit(model, expected):
    given = torch.from_numpy(expected.tensor) * 1.0001
    prepared = attnviz.prepare(given, model, normalised=True)
    np.testing.assert_array_equal(prepared.tensor, given.numpy())
    assert prepared.geometry.region == (0, 0, *given.shape[1:])
    found = attnviz.heads(model, prepared)
    own = model.run(given[None])
    assert found.attention.shape == (2, *(side // 8 for side in given.shape[1:]))
    assert own.shape[1] == 1 + found.attention[0].size
    # What the figure shows is the input with mean and std taken off, and 8 bits.
    pixels = expected.tensor * np.reshape(model.info.std, (3, 1, 1))
    pixels += np.reshape(model.info.mean, (3, 1, 1))
    shown = prepared.image.pixels.transpose(2, 0, 1) / 255
    np.testing.assert_allclose(shown, pixels, rtol=0, atol=1 / 255)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_are_taken_as_they_are(kind, model, expected):
    given = torch.from_numpy(expected.tensor).to(kind)
    prepared = attnviz.prepare(given, model, normalised=True)
    np.testing.assert_array_equal(prepared.tensor, given.float().numpy())


def test_what_8_bits_cannot_hold_is_said(model):
    prepared = attnviz.prepare(np.full((32, 32, 3), 0.1234), model)
    assert prepared.image.notes == ("float pixels rounded to 8 bits a channel",)
    assert (prepared.image.pixels == 31).all()  # 0.1234 * 255 = 31.47


def test_a_pillow_image_is_read_as_a_file_is(tmp_path):
    """Alpha is laid on white, orientation is followed, and the file gives the name."""
    image = Image.fromarray(PIXELS).convert("RGBA")
    image.putalpha(0)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    image.save(tmp_path / "turned.png", exif=exif)
    opened = attnviz.read(Image.open(tmp_path / "turned.png"))
    filed = attnviz.read(tmp_path / "turned.png")
    np.testing.assert_array_equal(opened.pixels, filed.pixels)
    assert opened.notes == filed.notes == ("transparency laid on white",)
    assert opened.pixels.shape == (56, 40, 3)
    assert opened.file.path.name == "turned.png"
    sixteen = Image.fromarray(PIXELS[:, :, 0].astype(np.uint16) * 257)
    np.testing.assert_array_equal(attnviz.read(sixteen).pixels[:, :, 1], PIXELS[:, :, 0])


def test_names(model):
    assert attnviz.prepare(PIXELS, model, name="cat").image.file.path.name == "cat"
    assert attnviz.prepare(PIXELS, model).image.file.path.name == "array"
    assert attnviz.prepare(TENSOR, model).image.file.path.name == "tensor"


def test_the_callers_array_may_change_later(model):
    pixels = PIXELS.copy()
    image = attnviz.read(pixels)
    pixels[:] = 0
    np.testing.assert_array_equal(image.pixels, PIXELS)


def test_a_batch_is_prepared_one_by_one(model, expected):
    batch = torch.stack([torch.from_numpy(expected.tensor)] * 2)
    found = attnviz.prepare_batch(batch, model, normalised=True)
    assert [one.image.file.path.name for one in found] == ["image 0", "image 1"]
    np.testing.assert_array_equal(found[1].tensor, expected.tensor)
    assert len(attnviz.prepare_batch(np.stack([PIXELS] * 3), model, size=32)) == 3
    with pytest.raises(ImageError, match="image 1: an array of shape"):
        attnviz.prepare_batch([PIXELS, PIXELS[0]], model)


NORMALISED = torch.zeros(3, 32, 32)
WRONG = {
    "not said": (TENSOR / 255, {}, UsageError, "whether a float tensor is normalised"),
    "not 0..1": (TENSOR.float(), {"normalised": False}, ImageError, "run from 0 to 255"),
    "floats above 1": (PIXELS * 1.0, {}, ImageError, "run from 0 to 255"),
    "negative": (PIXELS / 255 - 0.5, {}, ImageError, "run from -0.5 to 0.5"),
    "not a number": (np.full((8, 8, 3), np.nan), {}, ImageError, "run from nan"),
    "integers": (PIXELS.astype(int), {}, ImageError, "pixels of int64 have no known range"),
    "grey": (PIXELS[:, :, 0], {}, ImageError, r"shape \(40, 56\)"),
    "channels first": (PIXELS.transpose(2, 0, 1), {}, ImageError, r"shape \(3, 40, 56\)"),
    "channels last": (TENSOR.permute(1, 2, 0), {}, ImageError, r"shape \(40, 56, 3\)"),
    "four axes": (TENSOR[None], {}, ImageError, r"shape \(1, 3, 40, 56\)"),
    "empty": (PIXELS[:0], {}, ImageError, "no pixels"),
    "a number": (3, {}, ImageError, "object of type int"),
    "None": (None, {}, ImageError, "object of type NoneType"),
    "resized": (NORMALISED, {"normalised": True, "size": 64}, UsageError, "is not resized"),
    "part of a patch": (NORMALISED[:, :30], {"normalised": True}, ImageError, "multiples of"),
    "bytes": (TENSOR[:, :32, :32], {"normalised": True}, ImageError, "of uint8"),
    "infinite": (NORMALISED / 0, {"normalised": True}, ImageError, "not finite"),
    "another mean": (NORMALISED + 3, {"normalised": True}, UsageError, "not normalised for tiny"),
    "an image": (Image.fromarray(PIXELS), {"normalised": True}, ImageError, "of type Image"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_not_an_image_is_refused(kind, model):
    source, options, error, reason = WRONG[kind]
    with pytest.raises(error, match=reason) as caught:
        attnviz.prepare(source, model, **options)
    assert isinstance(caught.value, AttnvizError)
    assert caught.value.hint


def test_a_normalised_tensor_is_no_image_to_read():
    with pytest.raises(UsageError, match="input of one model"):
        attnviz.read(NORMALISED, normalised=True)
