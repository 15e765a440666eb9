"""How a table of small maps is fitted: worked by hand, and what always holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.figures.parts.map_table import Heading, _over_pages, fit_grid


def rows_of(count):
    return [Heading((f"Layer {index}",)) for index in range(count)]


@pytest.mark.parametrize(
    ("high", "expected"),
    [
        # With 0.1 beside, 4 rows on the first page (5.0 / 1.25) and 6 on others (8.4 / 1.25) make
        # 3 pages for 12 rows. At 8.4 / 8 = 1.05 they are 4 + 8; 0.8 of 1.15 is 0.92.
        (1.15, 0.95),
        # Down to 0.8 of 1.3 = 1.04, a step of 1.14, it would be 4 + 7 = 11 rows: all stays.
        (1.3, 1.3),
        # 8 rows on the first page and 14 on the next: nothing to gain.
        (0.5, 0.5),
    ],
)
def test_rows_shrink_by_a_fifth_where_that_saves_a_page(high, expected):
    assert _over_pages(high, 0.1, 12, first=5.0, page=8.4) == pytest.approx(expected, abs=1e-5)


@given(
    width=st.floats(2.0, 12.0),
    rows=st.integers(1, 40),
    columns=st.integers(1, 30),
    aspect=st.floats(1 / 12, 12.0),
    tallest=st.floats(0.5, 9.0),
    page=st.sampled_from([0.0, 8.4]),
    below=st.booleans(),
)
def test_a_table_keeps_to_its_width_and_to_the_shape_of_its_panels(
    width, rows, columns, aspect, tallest, page, below
):
    cells = fit_grid(width, rows_of(rows), columns, aspect, tallest, below=below, page=page)
    assert cells.columns * cells.blocks >= columns
    assert cells.width() <= width + 1e-9
    assert cells.panel_width == pytest.approx(cells.panel_height * aspect)
    assert cells.panel_width <= cells.slot + 1e-9
    if page and cells.whole:
        assert rows * cells.panel_height < tallest
