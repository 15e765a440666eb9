"""Discovered objects against the arrays of the original code of LOST and TokenCut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attnviz.attention.discovery import discover
from attnviz.domain import Box, DiscoverMethod, FitGeometry, Size
from attnviz.domain.geometry import box_around

PATCH = 8


@pytest.fixture(params=["20x28", "28x20"])
def original(request):
    path = Path(__file__).parent / "data" / "discovery" / f"discovery_{request.param}.npz"
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def found(original, method):
    keys = original["keys"]
    grid = Size(*keys.shape[:2])
    return discover(keys.reshape(-1, keys.shape[-1]), grid, method), grid


def box_of(mask, grid):
    """The box of a mask on an image that is as large as the model's input."""
    height, width = PATCH * grid.height, PATCH * grid.width
    region = Box(0.0, 0.0, float(height), float(width))
    geometry = FitGeometry(Size(height, width), Size(height, width), PATCH, region)
    rows, columns = np.nonzero(mask)
    return box_around(geometry, (rows.min(), columns.min()), (rows.max(), columns.max())).ltrb


def test_lost(original):
    result, grid = found(original, DiscoverMethod.LOST)
    np.testing.assert_array_equal(result.degree, original["lost_degree"])
    assert divmod(result.seed, grid.width) == tuple(original["lost_seed"])
    assert box_of(result.mask, grid) == tuple(original["lost_box_xyxy"])


def test_token_cut(original):
    result, grid = found(original, DiscoverMethod.TOKENCUT)
    expected = original["tokencut_eigenvector"]
    largest = np.abs(expected).max()
    np.testing.assert_allclose(result.eigenvectors[0], expected, rtol=0, atol=1e-5 * largest)
    np.testing.assert_array_equal(result.mask, original["tokencut_mask"])
    assert divmod(result.seed, grid.width) == tuple(original["tokencut_seed"])
    assert box_of(result.mask, grid) == tuple(original["tokencut_box_xyxy"])
