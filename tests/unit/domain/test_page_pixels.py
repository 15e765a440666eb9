"""Pages of too many pixels are refused before anything is drawn."""

from __future__ import annotations

import pytest

from attnviz.domain import DrawStyle
from attnviz.domain.drawing import MOST_PAGE_PIXELS, check_page_pixels, largest_dpi, tallest_page
from attnviz.errors import UsageError
from attnviz.figures.parts import page


@pytest.mark.parametrize(
    ("width", "height", "dpi"),
    [
        (100, None, 196),  # 100 x 130 inches: 5e8 / 13000 = 38461 = 196.1 ** 2
        (7, None, 2801),  # 7 x 9.1: 5e8 / 63.7 = 7849293 = 2801.7 ** 2
        (3.35, None, 4072),  # 3.35 x 9: 5e8 / 30.15 = 16583748 = 4072.3 ** 2
        (100, 10, 655),  # the side: 65535 / 100
        (1, 90, 728),
    ],
)
def test_the_largest_dpi_by_hand(width, height, dpi) -> None:
    assert largest_dpi(width, height) == dpi


def test_a_style_that_cannot_be_drawn_names_the_largest_dpi_for_its_width() -> None:
    with pytest.raises(UsageError, match="--dpi 2400 is too much for --width 100") as caught:
        DrawStyle(width=100, dpi=2400)
    assert caught.value.hint == "the largest for that width is --dpi 196"
    assert "74,880 million pixels" in str(caught.value)
    DrawStyle(width=100, dpi=196)
    with pytest.raises(UsageError):
        check_page_pixels(100, 197)


@pytest.mark.parametrize("width", [1, 3.35, 7, 8, 20, 100])
def test_every_page_that_a_figure_fills_is_within_the_limit(width) -> None:
    style = DrawStyle(width=width, dpi=min(2400, largest_dpi(width)))
    foot = page.Sheet(style, ())
    assert foot.limit <= tallest_page(width)
    assert width * tallest_page(width) * style.dpi**2 <= MOST_PAGE_PIXELS
