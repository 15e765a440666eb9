"""Enlarging, colouring and mixing maps, in numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attnviz.domain import Box, FitGeometry, Interpolation, Size
from attnviz.domain.overlay import overlay_weight
from attnviz.figures.parts.overlay import (
    blend,
    blend_colours,
    by_head,
    colour,
    dimmed,
    enlarge,
    level,
)
from attnviz.figures.parts.scale import Limits

NEAREST, BILINEAR = Interpolation.NEAREST, Interpolation.BILINEAR


def _line(values, size, how):
    return enlarge(np.array([values], np.float32), Size(1, size), how)[0]


def test_two_cells_to_sixteen_pixels():
    assert _line([0, 1], 16, NEAREST).tolist() == [0] * 8 + [1] * 8
    rising = [0.0625 + 0.125 * step for step in range(8)]
    np.testing.assert_allclose(_line([0, 1], 16, BILINEAR), [0] * 4 + rising + [1] * 4, atol=1e-7)


def test_five_cells_to_twelve_pixels_is_symmetric():
    drawn = _line([0, 1, 2, 3, 4], 12, NEAREST)
    assert drawn.tolist() == [0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4]


@settings(deadline=None, max_examples=60)
@given(*[st.integers(1, 9)] * 2, *[st.integers(1, 40)] * 2, st.sampled_from([*Interpolation]))
def test_a_mirrored_map_gives_the_mirrored_image(high, wide, height, width, how):
    for cells, pixels in ((high, height), (wide, width)):
        # Nearest has to decide for one side where a pixel's centre lies on a border of cells.
        on_border = [(2 * i + 1) * cells % (2 * pixels) == 0 for i in range(pixels)]
        assume(how is BILINEAR or not any(on_border))
    values = np.random.default_rng(high * 10 + wide).random((high, wide), np.float32)
    size = Size(height, width)
    drawn, mirrored = enlarge(values, size, how), enlarge(values[::-1, ::-1], size, how)
    np.testing.assert_allclose(mirrored[::-1, ::-1], drawn, atol=1e-5)
    assert drawn.min() >= values.min() - 1e-6
    assert drawn.max() <= values.max() + 1e-6


@pytest.mark.parametrize("how", Interpolation)
@pytest.mark.parametrize("patch", [7, 8, 13])
def test_the_centre_of_a_hot_cell_stays_where_it_is(how, patch):
    values = np.zeros((5, 6), np.float32)
    values[3, 2] = 1
    drawn = enlarge(values, Size(5 * patch, 6 * patch), how)
    y, x = np.mgrid[0 : drawn.shape[0], 0 : drawn.shape[1]]
    assert abs((drawn * y).sum() / drawn.sum() - (3.5 * patch - 0.5)) < 1e-3
    assert abs((drawn * x).sum() / drawn.sum() - (2.5 * patch - 0.5)) < 1e-3


def test_colours_at_the_ends_and_beyond():
    drawn = colour(np.array([-1, 0, 0.5, 1, 9], np.float32), Limits(0.0, 1.0), "gray")
    assert drawn[:, 0].tolist() == [0, 0, 128, 255, 255]


def test_overlay_weight_is_nothing_at_the_low_end():
    weight = overlay_weight(
        level(np.array([0.1, 0.15, 0.3, 0.9], np.float32), Limits(0.1, 0.3)), 0.8
    )
    np.testing.assert_allclose(weight, [0, 0.4, 0.8, 0.8], atol=1e-6)


def test_blend_mixes_by_weight():
    geometry = FitGeometry(Size(2, 2), Size(2, 2), 1, Box(0, 0, 2, 2))
    pixels = np.full((2, 2, 3), 100, np.uint8)
    values = np.array([[0, 1], [0.25, 1]], np.float32)
    out = blend(pixels, values, geometry, Limits(0.0, 1.0), "gray", 1.0, NEAREST)
    assert out[..., 0].tolist() == [[100, 255], [82, 255]]  # 0.5 * 100 + 0.5 * 64
    assert (pixels == 100).all()


def test_signed_values_are_clear_at_zero_and_coloured_on_either_side():
    geometry = FitGeometry(Size(2, 6), Size(2, 6), 2, Box(0, 0, 2, 6))
    pixels = np.full((2, 6, 3), 100, np.uint8)
    values = np.array([[-2, 0, 2]], np.float32)
    out = blend(pixels, values, geometry, Limits(-2.0, 2.0), "RdBu_r", 1.0, NEAREST, signed=True)
    assert out[0, ::2].tolist() == [[5, 48, 97], [100, 100, 100], [103, 0, 31]]


def test_colours_of_cells_are_blended_with_one_weight():
    geometry = FitGeometry(Size(2, 4), Size(2, 4), 2, Box(0, 0, 2, 4))
    pixels = np.full((2, 4, 3), 100, np.uint8)
    colours = np.array([[[1, 0, 0], [0, 0.2, 1]]], np.float32)
    out = blend_colours(pixels, colours, geometry, 0.5, NEAREST)
    # (100 + 255) / 2 and (100 + 51) / 2, rounded to even
    assert out[1, ::2].tolist() == [[178, 50, 50], [50, 76, 178]]


def test_the_strongest_renormalised_head_wins_a_cell():
    attention = np.array([[[0.6, 0.2]], [[0.01, 0.03]]], np.float32)
    colours = np.array([[255, 0, 0], [0, 0, 255]], np.uint8)
    drawn = by_head(np.full((1, 2, 3), 128, np.uint8), attention, colours, 1.0)
    assert drawn[0, 0, 0] > drawn[0, 0, 2]  # 0.75 against 0.25
    assert drawn[0, 1, 2] > drawn[0, 1, 0]  # 0.25 against 0.75


def test_the_strength_of_a_head_s_colour_follows_its_attention():
    # Shares of 9 cells, uniform is 1/9: none at 1/9 and below, all at 5/9, half at the level 1/4.
    shares = np.array([[5, 2, 1], [1, 0, 0], [0, 0, 0]], np.float32) / 9
    grey = np.full((3, 3, 3), 200, np.uint8)
    white = np.full((1, 3), 255, np.uint8)
    drawn = by_head(grey, shares[None], white, 1.0)[..., 0]
    ground, full = 125, 255  # of a grey image at full range, and its colour, clipped
    half = round((ground + 1.1 * 255) / 2)
    assert drawn.tolist() == [[full, half, ground], [ground] * 3, [ground] * 3]


def test_heads_without_a_preference_have_no_colour():
    grey = np.full((2, 2, 3), 200, np.uint8)
    colours = np.array([[255, 0, 0], [0, 0, 255]], np.uint8)
    drawn = by_head(grey, np.full((2, 2, 2), 0.01, np.float32), colours, 0.85)
    assert (drawn == 125).all()


def test_dimming_leaves_kept_cells_alone():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    kept = np.array([[True, False], [False, True]])
    drawn = dimmed(pixels, kept)
    np.testing.assert_array_equal(drawn[:2, :3], pixels[:2, :3])
    np.testing.assert_array_equal(drawn[2:, 3:], pixels[2:, 3:])
    other = drawn[:2, 3:]
    assert (other == other[..., :1]).all()
