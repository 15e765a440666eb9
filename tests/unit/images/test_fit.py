"""Sizes, regions and pixels of the model input, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from attnviz.domain import Box, Fit, Size
from attnviz.domain.requests import SizeRequest
from attnviz.errors import UsageError
from attnviz.images.fit import plan_fit, prepare
from attnviz.images.sizes import check_size
from tests.helpers.pictures import GREY, RED, model_info, rgb_image, scene

NATIVE = Size(224, 224)


@pytest.mark.parametrize(
    ("original", "patch", "size", "fit", "model_input", "region"),
    [
        # The shorter side becomes the native 224; 640 * 224 / 427 = 335.7 -> 336
        ((427, 640), 8, None, "aspect", (224, 336), (0, 0, 427, 640)),
        ((640, 427), 8, None, "aspect", (336, 224), (0, 0, 640, 427)),
        # 451 * 224 / 300 = 336.7; multiples of 16: 336
        ((300, 451), 16, None, "aspect", (224, 336), (0, 0, 300, 451)),
        # 250 is not a multiple of 8: 31.25 patches -> 31; 375 / 8 = 46.9 -> 47
        ((100, 150), 8, 250, "aspect", (248, 376), (0, 0, 100, 150)),
        # halfway between two multiples goes up: 100 -> 12.5 patches -> 13
        ((50, 50), 8, 100, "aspect", (104, 104), (0, 0, 50, 50)),
        ((500, 334), 8, 480, "squash", (480, 480), (0, 0, 500, 334)),
        ((500, 334), 8, 480, "crop", (480, 480), (83, 0, 417, 334)),
        ((334, 500), 8, 480, "crop", (480, 480), (0, 83, 334, 417)),
        # 250 x 500 fits as 112 x 224: the padded input is 500 x 500 pixels of the picture
        ((250, 500), 8, 224, "pad", (224, 224), (0, 0, 500, 500)),
        # 334 / 500 * 224 = 149.6 -> 150 pixels hold 334: 224 * 334 / 150 of them are the width
        ((500, 334), 8, 224, "pad", (224, 224), (0, 0, 500, 224 * 334 / 150)),
        # fits inside 240 x 320: 334 / 500 * 240 = 160.3 -> 160
        ((500, 334), 8, (240, 320), "aspect", (240, 160), (0, 0, 500, 334)),
        # 321 is not a multiple of 8: 320 wide, and 100 * 321 / 400 = 80.25 -> 80 high
        ((100, 400), 8, (241, 321), "aspect", (80, 320), (0, 0, 100, 400)),
        # 100 / 8 = 12.5 rounds to 104, which is above 100: 96
        ((100, 100), 8, (100, 100), "aspect", (96, 96), (0, 0, 100, 100)),
        ((500, 334), 8, (240, 320), "squash", (240, 320), (0, 0, 500, 334)),
        # cover 240 x 320: all of the width, 334 * 240 / 320 = 250.5 of the height, centred
        ((500, 334), 8, (240, 320), "crop", (240, 320), (124.75, 0, 375.25, 334)),
        ((500, 400), 8, (240, 320), "pad", (240, 320), (0, 0, 500, 320 * 400 / 192)),
        # the picture's own size
        ((250, 250), 8, "original", "crop", (248, 248), (0, 0, 248, 248)),
        ((250, 250), 8, "original", "pad", (256, 256), (0, 0, 256, 256)),
        ((250, 250), 8, "original", "aspect", (248, 248), (0, 0, 250, 250)),
        ((253, 250), 8, "original", "squash", (256, 248), (0, 0, 253, 250)),
        ((427, 488), 8, "original", "crop", (424, 488), (0, 0, 424, 488)),
        # no side loses its last patch
        ((1, 1), 8, None, "aspect", (224, 224), (0, 0, 1, 1)),
        ((1, 1), 8, "original", "crop", (8, 8), (0, 0, 1, 1)),
        ((1, 1), 8, "original", "aspect", (8, 8), (0, 0, 1, 1)),
        ((1, 1), 8, "original", "pad", (8, 8), (0, 0, 8, 8)),
        ((3000, 3), 8, "original", "crop", (3000, 8), (0, 0, 3000, 3)),
        # at most 16 times 224 = 3584 long; 3584 / 1000 = 3.6 -> one patch
        ((3000, 3), 8, None, "aspect", (3584, 8), (0, 0, 3000, 3)),
        ((3, 3000), 8, 224, "aspect", (8, 3584), (0, 0, 3, 3000)),
        ((3, 3000), 8, 224, "crop", (224, 224), (0, 1498.5, 3, 1501.5)),
        ((3, 3000), 8, 224, "pad", (224, 224), (0, 0, 3 * 224, 3000)),
        ((3, 3000), 8, (224, 224), "aspect", (8, 224), (0, 0, 3, 3000)),
        # one pixel is the least that a padded picture keeps
        ((1, 3000), 8, 224, "pad", (224, 224), (0, 0, 224, 3000)),
    ],
)
def test_geometry(
    original: tuple[int, int],
    patch: int,
    size: int | tuple[int, int] | str | None,
    fit: str,
    model_input: tuple[int, int],
    region: tuple[float, ...],
) -> None:
    request = Size(*size) if isinstance(size, tuple) else size
    geometry = plan_fit(Size(*original), patch, NATIVE, request, Fit(fit))
    assert geometry.model_input == model_input
    assert geometry.region == pytest.approx(Box(*region), abs=1e-9)
    assert geometry.original == original
    image = rgb_image(scene(*original))
    tensor = prepare(image, model_info(patch), request, Fit(fit)).tensor
    assert tensor.shape == (3, *model_input)
    assert np.isfinite(tensor).all()


def test_trimmed_picture_of_250_pixels_ends_at_its_last_whole_patch() -> None:
    geometry = plan_fit(Size(250, 250), 8, NATIVE, "original", Fit.CROP)
    assert geometry.grid == (31, 31)
    assert geometry.cell_box(30, 30) == (240, 240, 248, 248)
    assert geometry.cell_at(247.9, 247.9) == (30, 30)
    assert geometry.cell_at(248.5, 100) is None
    padded = plan_fit(Size(250, 250), 8, NATIVE, "original", Fit.PAD)
    assert padded.grid == (32, 32)
    assert padded.cell_box(30, 30) == (240, 240, 248, 248)


@pytest.mark.parametrize(
    ("original", "grid"),
    [((448, 224), (32, 16)), ((64, 144), (8, 18)), ((144, 64), (18, 8)), ((427, 488), (53, 61))],
)
def test_grid_is_height_by_width(original: tuple[int, int], grid: tuple[int, int]) -> None:
    patch = 14 if original == (448, 224) else 8
    assert plan_fit(Size(*original), patch, NATIVE, "original", Fit.CROP).grid == grid


@pytest.mark.parametrize("side", [546, 602, 1092, 1204, 1610, 1722])
def test_sizes_at_which_scale_factors_lose_a_row(side: int) -> None:
    geometry = plan_fit(Size(300, 300), 14, Size(518, 518), side, Fit.SQUASH)
    assert geometry.grid == (side // 14, side // 14)


def test_native_size_that_is_no_square_and_no_multiple() -> None:
    native = Size(378, 384)
    assert plan_fit(Size(50, 50), 14, native, None, Fit.SQUASH).model_input == (378, 378)
    assert plan_fit(Size(50, 50), 14, native, None, Fit.ASPECT).model_input == (378, 378)


@pytest.mark.parametrize("fit", [Fit.SQUASH, Fit.CROP, Fit.PAD])
@pytest.mark.parametrize("size", [250, Size(250, 256), Size(256, 250)])
def test_exact_size_is_never_rounded_in_silence(fit: Fit, size: SizeRequest) -> None:
    with pytest.raises(UsageError) as caught:
        plan_fit(Size(100, 100), 8, NATIVE, size, fit)
    assert "250" in str(caught.value)
    assert str(fit) in str(caught.value)
    assert caught.value.hint == "the nearest are 248 and 256"


@pytest.mark.parametrize("fit", list(Fit))
@pytest.mark.parametrize("size", [0, -8, 7, Size(0, 8), Size(224, 7)])
def test_size_below_one_patch_is_refused(fit: Fit, size: SizeRequest) -> None:
    with pytest.raises(UsageError, match="smaller than one patch of 8 pixels"):
        check_size(8, size, fit)


@pytest.mark.parametrize("fit", list(Fit))
def test_size_can_be_checked_before_there_is_a_picture(fit: Fit) -> None:
    for size in (None, "original", 224, Size(224, 448)):
        check_size(8, size, fit)


def test_solid_colour_is_normalised_by_hand() -> None:
    image = rgb_image(np.full((8, 8, 3), (124, 116, 104), dtype=np.uint8))
    dino = prepare(image, model_info(8, 8), None, Fit.ASPECT).tensor
    # (124 / 255 - .485) / .229 = .0056; (116 / 255 - .456) / .224; (104 / 255 - .406) / .225
    assert dino[:, 0, 0] == pytest.approx([0.0056, -0.0049, 0.0082], abs=1e-4)
    augreg = model_info(8, 8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    tensor = prepare(image, augreg, None, Fit.ASPECT).tensor
    assert tensor[:, 5, 2] == pytest.approx([-0.0275, -0.0902, -0.1843], abs=1e-4)
    own = prepare(image, augreg, None, Fit.ASPECT, mean=(0, 0, 0), std=(1, 1, 1)).tensor
    assert own[:, 0, 0] == pytest.approx([124 / 255, 116 / 255, 104 / 255])
    assert dino.dtype == np.float32
    assert dino.flags.c_contiguous
    with pytest.raises(UsageError, match="above 0"):
        prepare(image, augreg, None, Fit.ASPECT, std=(1, 0, 1))


def denormalised(tensor: np.ndarray) -> np.ndarray:
    info = model_info()
    scaled = tensor.transpose(1, 2, 0) * np.array(info.std) + np.array(info.mean)
    return np.rint(scaled * 255).astype(int)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize(
    ("size", "fit"),
    [
        ("original", Fit.ASPECT),
        ("original", Fit.CROP),
        (Size(48, 64), Fit.SQUASH),
        (Size(48, 64), Fit.ASPECT),
        (Size(48, 64), Fit.CROP),
        (Size(48, 64), Fit.PAD),
        (48, Fit.ASPECT),
    ],
)
def test_right_size_is_not_resampled(size: SizeRequest, fit: Fit, interpolation: str) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    tensor = prepare(rgb_image(pixels), model_info(8, 48, interpolation), size, fit).tensor
    np.testing.assert_array_equal(denormalised(tensor), pixels)


def test_crop_and_pad_without_scaling_move_whole_pixels() -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (51, 40, 3), dtype=np.uint8)
    crop = prepare(rgb_image(pixels), model_info(8), 40, Fit.CROP)
    assert crop.geometry.region == (5, 0, 45, 40)
    np.testing.assert_array_equal(denormalised(crop.tensor), pixels[5:45])
    pad = prepare(rgb_image(pixels), model_info(8), "original", Fit.PAD)
    np.testing.assert_array_equal(denormalised(pad.tensor[:, :51]), pixels)
    assert not pad.tensor[:, 51:].any()
    trimmed = prepare(rgb_image(pixels), model_info(8), "original", Fit.CROP)
    np.testing.assert_array_equal(denormalised(trimmed.tensor), pixels[:48])


def test_resampling_is_pillows_in_one_step() -> None:
    pixels = scene(50, 75)
    tensor = prepare(rgb_image(pixels), model_info(8), Size(32, 48), Fit.SQUASH).tensor
    expected = Image.fromarray(pixels).resize((48, 32), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(denormalised(tensor), np.asarray(expected))


def test_picture_stays_as_it_was() -> None:
    pixels = scene(50, 75)
    before = pixels.copy()
    image = rgb_image(pixels)
    for fit in Fit:
        assert prepare(image, model_info(8), 32, fit).image is image
    np.testing.assert_array_equal(pixels, before)


def test_limited_sides_are_noted() -> None:
    long = prepare(rgb_image(scene(3, 3000)), model_info(8, 32), None, Fit.ASPECT)
    assert long.image.notes == ("sides differ more than 16 times, so the model saw 8x512",)
    just = prepare(rgb_image(scene(3, 48)), model_info(8, 32), None, Fit.ASPECT)
    assert just.image.notes == ()
    assert just.geometry.model_input == (32, 512)


def test_red_square_lies_in_its_cell_under_a_centre_crop() -> None:
    # 500 x 334, crop to 480: the picture is scaled by 480 / 334 and rows 83..417 are kept.
    pixels = np.full((500, 334, 3), GREY, dtype=np.uint8)
    pixels[200:240, 100:140] = RED
    prepared = prepare(rgb_image(pixels), model_info(16), 480, Fit.CROP)
    row, column = prepared.geometry.cell_at(220, 120)
    # (220 - 83) * 480 / 334 / 16 = 12.3; 120 * 480 / 334 / 16 = 10.8
    assert (row, column) == (12, 10)
    seen = denormalised(prepared.tensor)
    assert tuple(seen[row * 16 + 8, column * 16 + 8]) == RED
    assert tuple(seen[4 * 16 + 8, column * 16 + 8]) == GREY
    assert prepared.geometry.cell_at(82, 120) is None


@pytest.mark.parametrize("size", [(96, 64), [96, 64], Size(96, 64), (np.int64(96), np.int64(64))])
@pytest.mark.parametrize("fit", list(Fit))
def test_any_pair_of_whole_numbers_is_height_and_width(size, fit) -> None:
    image = rgb_image(scene(120, 80))
    prepared = prepare(image, model_info(8), size, fit)
    expected = prepare(image, model_info(8), Size(96, 64), fit)
    assert prepared.geometry == expected.geometry
    assert prepared.geometry.model_input == (96, 64)


@pytest.mark.parametrize("size", [(96,), (1, 2, 3), "96x64", 96.5, (96.0, 64), {}, ("a", 1)])
def test_what_is_not_a_size_is_named(size) -> None:
    for call in (
        lambda: prepare(rgb_image(scene(12, 8)), model_info(8), size, Fit.ASPECT),
        lambda: check_size(8, size, Fit.ASPECT),
    ):
        with pytest.raises(UsageError, match="is not a size") as caught:
            call()
        assert "(height, width)" in caught.value.hint
