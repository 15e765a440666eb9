"""One rule for overlays: in figures, in overlay files and in explorer pages."""

from __future__ import annotations

import numpy as np
import pytest

from attnviz.domain import Box, DrawStyle, FitGeometry, HeadsMaps, Interpolation, Size
from attnviz.domain.kinds import HeadsRequest
from attnviz.domain.overlay import overlay_weight, visible_region
from attnviz.explorer.document import _overlay_weights
from attnviz.explorer.picture import seen
from attnviz.figures import overlay_images
from attnviz.figures.parts.overlay import colour, mix, model_view
from attnviz.figures.parts.panels import overlay_panel
from attnviz.figures.parts.scale import Limits
from tests.figures import samples

GRID = (4, 6)


def test_the_weights_of_a_page_are_those_of_the_figures():
    weights = _overlay_weights()
    assert len(weights) == 256
    assert (weights[0], weights[255]) == (0.0, 1.0)
    assert weights[64] == pytest.approx(np.sqrt(64 / 255), abs=1e-5)
    levels = np.linspace(0, 1, 256, dtype=np.float32)
    np.testing.assert_allclose(weights, overlay_weight(levels, 1.0), atol=1e-5)


@pytest.mark.parametrize("region", [(0, 0, 32, 48), (4, 6, 28, 42), (-8, 0, 40, 48)])
def test_a_page_shows_the_same_region_as_a_figure(region):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)
    geometry = FitGeometry(Size(32, 48), Size(32, 48), 8, Box(*map(float, region)))
    image = samples.image_of(pixels, GRID, region=geometry.region)
    page = np.asarray(seen(pixels, geometry))
    np.testing.assert_array_equal(page, model_view(image, Size(*page.shape[:2])))
    np.testing.assert_array_equal(page, visible_region(pixels, geometry, Size(*page.shape[:2])))


@pytest.mark.parametrize("how", Interpolation)
def test_an_overlay_file_is_the_panel_of_the_figure(how):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)
    image = samples.image_of(pixels, GRID)
    values = np.random.default_rng(1).random(GRID).astype(np.float32) / 48
    maps = HeadsMaps(
        values[None], np.zeros((1, 1), np.float32), np.ones(1, np.float32), None, 0, (0,)
    )
    style = DrawStyle(interpolation=how)
    (file,) = overlay_images(maps, image, style, HeadsRequest()).values()
    panel = overlay_panel(("",), image, values, style, None)
    np.testing.assert_array_equal(file, panel.raster(Size(32, 48)))
    if how is Interpolation.NEAREST:
        # By hand at the highest cell: alpha of the last colour over the pixel.
        row, column = np.unravel_index(values.argmax(), GRID)
        part = (slice(8 * row, 8 * row + 8), slice(8 * column, 8 * column + 8))
        last = colour(np.ones((8, 8), np.float32), Limits(0.0, 1.0), style.cmap)
        expected = mix(pixels[part], last, np.full((8, 8), style.alpha, np.float32))
        np.testing.assert_array_equal(file[part], expected)
