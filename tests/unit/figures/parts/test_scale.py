"""Colour limits: own, shared, fixed and percentiles, and what the colour bars say of them."""

from __future__ import annotations

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

from attnviz.domain import DrawStyle, HeadsMaps, Percentile, Scale
from attnviz.errors import UsageError
from attnviz.figures import draw
from attnviz.figures.parts.colour_bars import SIGNED_CMAP, ColourScale
from attnviz.figures.parts.scale import Limits, common_limits, own_limits, scale_text
from tests.figures import samples
from tests.figures.rendering import maps_of, pixels_of, rasters_of, words_of

HUNDRED = np.arange(101, dtype=np.float32)


def fixed(low, high, **changes):
    return DrawStyle(scale=Scale.FIXED, fixed_limits=(low, high), **changes)


def test_own_limits_and_their_guards():
    assert own_limits(np.array([0.25, 1.0], np.float32)) == Limits(0.25, 1.0)
    assert own_limits(np.full(4, 0.5, np.float32)) == Limits(0.0, 0.5)
    assert own_limits(np.zeros(4, np.float32)) == Limits(0.0, 1.0)


def test_common_limits_follow_the_scale():
    maps = [np.array([0.1, 0.25], np.float32), np.array([0.5], np.float32)]
    assert common_limits(maps, DrawStyle()) is None
    assert common_limits(maps, DrawStyle(scale=Scale.SHARED)) == Limits(0.0, 0.5)


@pytest.mark.parametrize(
    ("low", "high", "below", "above"),
    [(0.0, 1.0, False, False), (0.1, 0.5, False, False), (0.2, 0.5, True, False),
     (0.0, 0.3, False, True), (0.2, 0.3, True, True)],
)  # fmt: skip
def test_fixed_limits_know_of_values_beyond_them(low, high, below, above):
    maps = [np.array([0.1, 0.25], np.float32), np.array([0.5], np.float32)]
    assert common_limits(maps, fixed(low, high)) == Limits(low, high, below, above)


def test_percentiles_are_those_of_all_values_together():
    # Of 0..100 the percentiles are the values themselves, however they are spread over maps.
    maps = [HUNDRED[:40], HUNDRED[40:]]
    assert common_limits(maps, fixed(Percentile(1), Percentile(99))) == Limits(1, 99, True, True)
    assert common_limits(maps, fixed(0.0, Percentile(90))) == Limits(0, 90, above=True)
    assert common_limits(maps, fixed(Percentile(0), Percentile(100))) == Limits(0, 100)


@pytest.mark.parametrize("level", [0.0, 0.5])
def test_percentiles_of_a_constant_map_are_limits(level):
    maps = [np.full(9, level, np.float32)]
    assert common_limits(maps, fixed(Percentile(1), Percentile(99))) == own_limits(maps[0])


def test_limits_in_the_wrong_order_are_refused():
    with pytest.raises(UsageError, match="the lower one comes first"):
        common_limits([HUNDRED], fixed(2.0, 1.0))


def test_the_foot_names_percentiles():
    style = fixed(Percentile(1), Percentile(99.5))
    assert scale_text(style) == "one colour scale from percentile 1 to percentile 99.5"
    assert scale_text(fixed(0.0, Percentile(99))) == "one colour scale from 0 to percentile 99"


def _end_of_bar(high):
    """The last 0.06 inches of the bar of a 0.80 among 0.002, limits 0 to ``high``; 100 dpi."""
    values = np.full((1, 4, 4), 0.002, np.float32)
    values[0, 1, 2] = 0.8
    rest = (1 - values.sum(axis=(1, 2)))[:, None]
    maps = HeadsMaps(values, rest, np.ones(1, np.float32), None, 0, (0,))
    image = samples.image_of(np.full((64, 64, 3), 90, np.uint8), (4, 4))
    figure = draw(maps, image, samples.model_info(), fixed(0.0, high, dpi=100))[0]
    bar = rasters_of(figure)[-1].rect
    rows = slice(round(bar.top * 100), round(bar.bottom * 100))
    return pixels_of(figure)[rows, round(bar.right * 100) - 3 : round(bar.right * 100) + 7]


def test_a_bar_with_values_above_it_ends_in_a_point():
    brightest = np.array(mpl.colormaps["inferno"](1.0, bytes=True))[:3]
    pointed, blunt = _end_of_bar(0.0026), _end_of_bar(0.8)
    filled = (pointed < 250).any(axis=2).sum(axis=0)  # pixels of each column that are not white
    assert filled[:3].tolist() == [len(pointed)] * 3
    assert (np.diff(filled[3:9].astype(int)) <= 0).all()
    assert filled[3] > filled[8] > 0
    np.testing.assert_array_equal(pointed[len(pointed) // 2, 4], brightest)
    assert (blunt[:, :3] < 250).any(axis=2).all()
    assert (blunt[:, 4:] == 255).all()


def _matrix(shift):
    maps = samples.matrix_maps((4, 6), 2)
    logits = {
        "mean_logits": maps.mean_logits + np.float32(shift),
        "cell_logits": maps.cell_logits + np.float32(shift),
    }
    maps = replace(maps, logit_range=maps.logit_range + np.float32(shift), **logits)
    image = samples.image_of(samples.photograph(), (4, 6))
    return maps, draw(maps, image, samples.model_info(heads=2), DrawStyle())[0]


@pytest.mark.parametrize("shift", [-40.0, 40.0])
def test_logits_of_one_sign_fill_the_colour_map(shift):
    maps, figure = _matrix(shift)
    matrix = rasters_of(figure)[4 + 3]  # after the image, three maps and their bars
    drawn = matrix.raster(samples.Size(400, 400)).reshape(-1, 3).astype(int)
    table = np.array(mpl.colormaps["inferno"](np.arange(256), bytes=True))[:, :3].astype(int)
    for end in (table[0], table[-1]):
        assert np.abs(drawn - end).sum(axis=1).min() == 0
    foot = " ".join(words_of(figure))
    assert "white at 0" not in foot
    low, high = float(maps.logit_range.min()), float(maps.logit_range.max())
    assert f"from {low:.0f} to {high:.0f}" in foot


def test_logits_of_both_signs_are_white_at_0_and_the_bar_ends_with_them():
    scale = ColourScale(Limits(-1.0, 4.0), SIGNED_CMAP, symmetric=True)
    drawn = scale.colours(np.array([-1.0, 0.0, 1.0, 4.0], np.float32)).tolist()
    table = np.array(mpl.colormaps[SIGNED_CMAP](np.arange(256), bytes=True))[:, :3].tolist()
    assert drawn == [table[96], table[128], table[160], table[255]]
    assert scale.levels == (0.375, 1.0)
    _, figure = _matrix(0.0)
    assert "white at 0" in " ".join(words_of(figure))
    assert maps_of(figure)
