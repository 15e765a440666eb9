"""The evaluation against masks, with grids worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.domain import Box, FitGeometry, Size
from attnviz.domain.mass_mask import OUTSIDE, cell_numbers, on_pixels
from attnviz.runs.jaccard import ImageScores, jaccard, score_image, summarise

WHOLE = FitGeometry(Size(4, 8), Size(16, 16), 8, Box(0, 0, 4, 8))
"""2 x 2 cells, each 2 x 4 pixels of the picture."""

OBJECT = np.array(
    [[1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0], [0] * 8], bool
)
"""The whole of cell (0, 0) and two of the eight pixels of cell (1, 0): 10 pixels."""


def maps(*values):
    return np.array(values, np.float32).reshape(len(values), 2, 2)


def test_every_pixel_belongs_to_the_cell_under_its_centre():
    cells = cell_numbers(WHOLE)
    assert cells.tolist() == [[0] * 4 + [1] * 4] * 2 + [[2] * 4 + [3] * 4] * 2
    kept = on_pixels(np.array([[True, False], [False, True]]), cells)
    assert kept.tolist() == [[True] * 4 + [False] * 4] * 2 + [[False] * 4 + [True] * 4] * 2


def test_cut_off_pixels_belong_to_no_cell_and_are_not_kept():
    cropped = FitGeometry(Size(4, 8), Size(16, 16), 8, Box(0, 2, 4, 6))
    cells = cell_numbers(cropped)
    row = [OUTSIDE, OUTSIDE, 0, 0, 1, 1, OUTSIDE, OUTSIDE]
    assert cells[0].tolist() == row
    assert not on_pixels(np.ones((2, 2), bool), cells)[:, :2].any()


def test_padding_holds_no_pixels():
    padded = FitGeometry(Size(4, 4), Size(16, 16), 8, Box(0, 0, 4, 8))
    assert cell_numbers(padded).tolist() == [[0] * 4] * 2 + [[2] * 4] * 2


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 30), st.integers(1, 30), st.integers(1, 5), st.integers(1, 5),
    st.floats(-5, 5), st.floats(-5, 5), st.floats(1, 40), st.floats(1, 40),
)  # fmt: skip
def test_cells_are_those_of_the_geometry(height, width, rows, columns, top, left, high, wide):
    region = Box(top, left, top + high, left + wide)
    geometry = FitGeometry(Size(height, width), Size(8 * rows, 8 * columns), 8, region)
    cells = cell_numbers(geometry)
    y, x = height // 2, width // 3
    cell = geometry.cell_at(y + 0.5, x + 0.5)
    place = OUTSIDE if cell is None else cell[0] * columns + cell[1]
    edges = [(y + 0.5 - top) * rows / high, (x + 0.5 - left) * columns / wide]
    if all(abs(edge - round(edge)) > 1e-9 for edge in edges):
        assert cells[y, x] == place


def test_jaccard_by_hand():
    left = np.array([[True, True, False, False]])
    assert jaccard(left, np.array([[False, True, True, True]])) == 1 / 4
    assert jaccard(left, left) == 1
    assert jaccard(~left & left, left) == 0
    assert jaccard(~left & left, ~left & left) == 0


def test_one_picture_by_hand():
    attention = maps([7, 1, 1, 1], [1, 4, 4, 1], [5, 0, 5, 0])
    rollout = maps([1, 1, 1, 1])[0]
    scores = score_image(attention, rollout, WHOLE, OBJECT, threshold=0.6)
    # Head 0 keeps cell 0 (8 pixels, all of the object's 10): 8 / 10. Head 1 keeps cells 1 and 2
    # (16 pixels, 2 of the object): 2 / 24. Head 2 keeps cells 0 and 2 (16, all 10): 10 / 16.
    assert scores.heads == (0.8, 2 / 24, 10 / 16)
    # The mean is 13 : 5 : 10 : 2, of which cells 0 and 2 hold 23 / 30.
    assert scores.mean_map == 10 / 16
    # Even: the first three cells in reading order hold 3 / 4; 24 pixels.
    assert scores.rollout == 10 / 24
    assert scores.peak_on_object


def test_the_threshold_counts():
    attention = maps([7, 1, 1, 1])
    scores = score_image(attention, attention[0], WHOLE, OBJECT, threshold=0.75)
    assert scores.heads == (8 / 18,)  # cell 1 is the first of the equal ones


@pytest.mark.parametrize(("covered", "on_object"), [(4, True), (3, False)])
def test_the_highest_cell_is_on_the_object_from_half_its_pixels_on(covered, on_object):
    mask = np.zeros((4, 8), bool)
    mask[2, :covered] = True
    attention = maps([1, 1, 9, 1])
    assert score_image(attention, attention[0], WHOLE, mask).peak_on_object is on_object


def test_cells_smaller_than_a_pixel_count_by_the_pixel_they_lie_in():
    geometry = FitGeometry(Size(1, 2), Size(32, 32), 8, Box(0, 0, 1, 2))
    attention = np.full((1, 4, 4), 1, np.float32)
    attention[0, 3, 3] = 9
    for column, on_object in ((0, False), (1, True)):
        mask = np.zeros((1, 2), bool)
        mask[0, column] = True
        scores = score_image(attention, attention[0], geometry, mask)
        assert scores.peak_on_object is on_object


def test_a_peak_in_the_padding_is_not_on_the_object():
    padded = FitGeometry(Size(4, 4), Size(16, 16), 8, Box(0, 0, 4, 8))
    attention = maps([1, 9, 1, 1])
    mask = np.ones((4, 4), bool)
    assert not score_image(attention, attention[0], padded, mask).peak_on_object


def test_averages_by_hand():
    summary = summarise(
        [
            ImageScores((0.2, 0.6), 0.5, 0.1, peak_on_object=True),
            ImageScores((0.9, 0.7), 0.7, 0.3, peak_on_object=False),
            ImageScores((0.1, 0.5), 0.3, 0.2, peak_on_object=True),
        ]
    )
    assert summary.pictures == 3
    assert summary.heads == pytest.approx((0.4, 0.6))
    assert (summary.best_head, summary.best_fixed_head) == (1, pytest.approx(0.6))
    assert summary.best_head_per_image == pytest.approx((0.6 + 0.9 + 0.5) / 3)
    assert (summary.mean_map, summary.rollout) == (pytest.approx(0.5), pytest.approx(0.2))
    assert summary.peak_on_object == pytest.approx(2 / 3)
