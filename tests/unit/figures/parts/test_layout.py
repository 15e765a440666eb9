"""The arithmetic of panels, ticks and limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.figures.parts.layout import GAP, grid_of, shown_aspect, tick_text, ticks


@pytest.mark.parametrize(
    ("count", "columns"), [(4, 4), (6, 6), (7, 4), (8, 4), (12, 6), (16, 6), (24, 6)]
)
def test_columns_of_a_page_are_even(count, columns):
    assert grid_of(count, 6.94, 1.5).columns == columns


def test_wide_images_get_fewer_columns():
    assert grid_of(6, 6.94, 4.0).columns == 3
    assert grid_of(6, 6.94, 4.0).panel_height >= 0.5


def test_tall_images_get_narrow_panels_rather_than_a_long_page():
    assert grid_of(4, 3.29, 2 / 3).columns == 4
    assert grid_of(4, 3.29, 1.5).columns == 2


@settings(deadline=None)
@given(st.integers(1, 60), st.floats(1.4, 12), st.floats(1 / 12, 12), st.integers(1, 4))
def test_panels_keep_their_shape_and_stay_on_the_page(count, width, aspect, at_least):
    grid = grid_of(count, width, aspect, at_least=at_least)
    assert grid.panel_width == pytest.approx(grid.panel_height * aspect)
    assert grid.panel_width <= grid.slot + 1e-9
    assert grid.columns * grid.slot + (grid.columns - 1) * GAP <= width + 1e-9


def test_extreme_shapes_are_bounded():
    assert shown_aspect(3, 3000) == 12
    assert shown_aspect(3000, 3) == pytest.approx(1 / 12)
    assert shown_aspect(200, 300) == 1.5


@pytest.mark.parametrize(
    ("low", "high", "most", "texts"),
    [
        (0.0, 6.67, 5, ["0", "2", "4", "6"]),
        (0.0, 0.56, 5, ["0.0", "0.2", "0.4"]),
        (5.0, 7.07, 5, ["5", "6", "7"]),
        (0.0, 8.8e-4, 5, ["0", "5e-4"]),
        (0.0, 120.0, 4, ["0", "50", "100"]),
    ],
)
def test_ticks_are_round(low, high, most, texts):
    assert tick_text(ticks(low, high, most)) == texts


@settings(deadline=None)
@given(st.floats(-1e3, 1e3), st.floats(1e-6, 1e3), st.integers(2, 12))
def test_ticks_lie_in_the_range_and_are_not_too_many(low, span, most):
    values = ticks(low, low + span, most)
    assert len(values) <= most
    assert all(low - span * 1e-6 <= value <= low + span * (1 + 1e-6) for value in values)
