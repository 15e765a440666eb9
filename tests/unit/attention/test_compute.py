"""The cells that a request looks from."""

from __future__ import annotations

import numpy as np
import pytest

import attnviz
from attnviz.attention.compute import query_cells
from attnviz.domain import Box, FitGeometry, Size
from attnviz.domain.kinds import FeaturesRequest, PatchRequest
from attnviz.errors import ImageError
from tests.helpers.planted import tiny_vit

GEOMETRY = FitGeometry(Size(24, 40), Size(24, 40), 8, Box(0, 0, 24, 40))  # 3 rows, 5 columns


@pytest.mark.parametrize("request_", [PatchRequest, FeaturesRequest])
@pytest.mark.parametrize("cell", [(-1, 0), (0, -1), (-3, -5), (3, 0), (0, 5)])
def test_a_cell_outside_the_grid_is_an_error_with_the_range(request_, cell):
    with pytest.raises(ImageError, match=f"cell {cell[0]},{cell[1]} lies outside") as caught:
        query_cells(request_(cells=(cell,)), GEOMETRY)
    assert caught.value.hint == "rows run from 0 to 2, columns from 0 to 4"


def test_cells_and_points_keep_their_order():
    request = PatchRequest(cells=((2, 4), (0, 0)), points=((39, 0), (0, 23)))
    assert query_cells(request, GEOMETRY) == [(2, 4), (0, 0), (0, 4), (2, 0)]


def test_negative_cells_in_python():
    pixels = np.zeros((24, 40, 3), np.uint8)
    image = attnviz.prepare(pixels, tiny_vit(), size=Size(24, 40))
    with pytest.raises(ImageError, match="cell -1,0 lies outside the grid of 3 rows"):
        attnviz.compute_maps(tiny_vit(), [image], PatchRequest(cells=((-1, 0),)))
