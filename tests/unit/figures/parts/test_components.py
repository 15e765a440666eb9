"""Principal components as colours, by hand, and alike in every figure that has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attnviz.domain import DrawStyle, Interpolation, MapKind, Part, Size
from attnviz.figures import draw, draw_comparison
from attnviz.figures.parts.component_colours import component_colours
from tests.figures import samples
from tests.figures.rendering import maps_of, rasters_of

GRID = (7, 11)


def test_a_component_runs_from_its_2nd_to_its_98th_percentile():
    # 0..100 has the percentiles 2 and 98; a quarter of the way up is 26.
    values = np.arange(101, dtype=np.float32)
    components = np.stack([values, -values, np.full(101, 7.0, np.float32)], axis=-1)[None]
    red, green, blue = np.moveaxis(component_colours(components)[0], -1, 0)
    assert red[[0, 2, 26, 50, 98, 100]] == pytest.approx([0, 0, 0.25, 0.5, 1, 1])
    assert green == pytest.approx(1 - red, abs=1e-6)
    assert (blue == 0.5).all()


def test_only_cells_of_the_mask_count():
    components = np.zeros((1, 103, 3), np.float32)
    components[0, :, 0] = [*range(101), 1e6, -1e6]
    mask = np.ones((1, 103), bool)
    mask[0, 101:] = False
    colours = component_colours(components, mask)
    assert colours[0, 26, 0] == pytest.approx(0.25)
    assert (colours[0, 101:] == 0).all()


@pytest.mark.parametrize("how", Interpolation)
def test_features_qkv_and_compare_colour_the_same_components_alike(how):
    style = DrawStyle(interpolation=how)
    image = samples.image_of(samples.photograph(), GRID)
    features = samples.features_maps(GRID, [])
    vectors = samples.qkv_maps(GRID, 1, parts=(Part.KEY,))
    vectors = replace(vectors, joint_components=features.components[None])
    row = samples.compared_row(("cat.jpg",), image, samples.model_info(heads=1))
    maps = {"pca": replace(row.maps["pca"], values=features.components)}
    maps["k-pca"] = replace(maps["pca"], kind=MapKind.KEY_PCA, layer=0)
    figures = (
        draw(features, image, samples.model_info(), style)[0],
        draw(vectors, image, samples.model_info(heads=1), style)[0],
        draw_comparison([replace(row, maps=maps)], style)[0],
    )
    size = Size(70, 110)
    panels = [rasters_of(figure)[1] for figure in figures] + [rasters_of(figures[2])[2]]
    pixels = [panel.raster(size) for panel in panels]
    assert len(np.unique(pixels[0].reshape(-1, 3), axis=0)) > 50
    for other in pixels[1:]:
        np.testing.assert_array_equal(pixels[0], other)
    if how is Interpolation.NEAREST:
        assert panels[0] in maps_of(figures[0])
