"""Where cells lie on the image, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz.attention import memory
from attnviz.attention.compute import query_cells
from attnviz.domain import Box, FitGeometry, Interpolation, Size
from attnviz.domain.geometry import grid_of
from attnviz.domain.kinds import HeadsRequest, PatchRequest, RolloutRequest
from attnviz.domain.mass_mask import cell_numbers, on_pixels
from attnviz.errors import ImageError
from attnviz.explorer.picture import seen
from attnviz.figures.parts.layout import Rect
from attnviz.figures.parts.overlay import blend, dimmed_cells, on_cells
from attnviz.figures.parts.page import Page
from attnviz.figures.parts.panels import Panel, draw_panel
from attnviz.figures.parts.scale import Limits
from tests.figures.samples import model_info

# An image of 96 x 64 pixels, of which rows 8 to 88 are seen as 40 x 32 input pixels: two image
# pixels an input pixel.
PLAIN = FitGeometry(Size(96, 64), Size(40, 32), 8, Box(8, 0, 88, 64))
FINE = FitGeometry(Size(96, 64), Size(40, 32), 8, Box(8, 0, 88, 64), stride=4)


def test_the_grid_of_patches_that_overlap():
    assert PLAIN.grid == (5, 4)
    assert FINE.grid == (9, 7)
    assert grid_of(Size(8, 8), 8, 4) == (1, 1)
    assert grid_of(Size(518, 224), 14, 7) == (73, 31)


def test_a_cell_lies_about_the_centre_of_its_patch():
    # The first patch covers input pixels 0 to 8, its centre is 4, and its cell 2 to 6.
    assert FINE.cell_box(0, 0) == (12, 4, 20, 12)
    assert FINE.cell_box(8, 6) == (76, 52, 84, 60)
    assert FINE.edge == 2
    assert FINE.covered == (12, 4, 84, 60)
    assert FINE.margins == (2 / 40, 2 / 32)
    assert PLAIN.covered == PLAIN.region
    assert PLAIN.cell_box(4, 3) == (72, 48, 88, 64)
    for row in range(9):
        for column in range(7):
            top, left, bottom, right = FINE.cell_box(row, column)
            centre = (8 + 2 * (4 * row + 4), 2 * (4 * column + 4))
            assert ((top + bottom) / 2, (left + right) / 2) == centre
            assert FINE.cell_at(*centre) == (row, column)


def test_points_at_the_edge_have_no_cell():
    assert FINE.cell_at(12, 4) == (0, 0)
    assert FINE.cell_at(11.9, 30) is None
    assert FINE.cell_at(84, 30) is None
    assert FINE.in_region(11.9, 30)
    assert not FINE.in_region(5, 30)
    with pytest.raises(ImageError, match="in the edge of 2 input pixels"):
        query_cells(PatchRequest(points=((30, 10),)), FINE)
    with pytest.raises(ImageError, match="outside what the model sees"):
        query_cells(PatchRequest(points=((30, 5),)), FINE)
    assert query_cells(PatchRequest(points=((4, 12),)), FINE) == [(0, 0)]


def test_masks_go_by_the_same_cells():
    cells = cell_numbers(FINE)
    assert cells.shape == (96, 64)
    assert (cells[:12] == -1).all()
    assert (cells[84:] == -1).all()
    assert (cells[:, :4] == -1).all()
    assert (cells[:, 60:] == -1).all()
    assert cells[12:84, 4:60].min() == 0
    kept = np.zeros((9, 7), bool)
    kept[1, 2] = True
    mask = on_pixels(kept, cells)
    assert mask.sum() == 64
    assert mask[20:28, 20:28].all()


def test_overlays_leave_the_edges_alone():
    pixels = np.full((40, 32, 3), 200, np.uint8)
    drawn = on_cells(pixels, FINE, np.zeros_like)
    assert (drawn[2:38, 2:30] == 0).all()
    drawn[2:38, 2:30] = 200
    assert (drawn == 200).all()
    kept = np.zeros((9, 7), bool)
    kept[0, 0] = True
    shown = dimmed_cells(pixels, FINE, kept)
    assert (shown[2:6, 2:6] == 200).all()
    assert (shown[:2] != 200).all()
    assert (shown[6:, 6:] != 200).all()


def test_overlay_files_leave_the_edges_alone():
    pixels = np.full((96, 64, 3), 200, np.uint8)
    values = np.linspace(0.5, 1, 63).reshape(9, 7).astype(np.float32)
    drawn = blend(pixels, values, FINE, Limits(0, 1), "inferno", 1.0, Interpolation.NEAREST)
    changed = (drawn != pixels).any(axis=-1)
    assert changed[12:84, 4:60].all()
    changed[12:84, 4:60] = False
    assert not changed.any()
    assert len(np.unique(drawn[12:20, 4:12].reshape(-1, 3), axis=0)) == 1  # the first cell


def test_a_map_is_drawn_inside_its_edges():
    page = Page(2.0, 100)
    page.margins = FINE.margins
    panel = Panel(("",), lambda size: np.zeros((*size, 3), np.uint8), of_cells=True)
    draw_panel(page, panel, Rect(0.0, 0.0, 1.6, 2.0))
    (_, whole, _), (_, inner, _) = page._rasters
    assert (whole.width, whole.height) == (1.6, 2.0)
    assert inner == pytest.approx((0.1, 0.1, 1.4, 1.8))
    page = Page(2.0, 100)
    page.margins = FINE.margins
    image = Panel(("",), lambda size: np.zeros((*size, 3), np.uint8))
    draw_panel(page, image, Rect(0.0, 0.0, 1.6, 2.0))
    ((_, whole, _),) = page._rasters
    assert (whole.width, whole.height) == (1.6, 2.0)


def test_the_explorer_shows_what_cells_cover():
    pixels = np.zeros((96, 64, 3), np.uint8)
    pixels[12:84, 4:60] = 255
    shown = np.asarray(seen(pixels, FINE))
    assert shown.shape == (72, 56, 3)
    assert (shown == 255).all()


@pytest.mark.parametrize("stride", [4, 2])
def test_memory_grows_with_the_fourth_power_of_the_patch_over_the_stride(stride):
    plain, fine = model_info(), model_info(stride=stride)
    size, cpu = Size(1600, 1600), torch.device("cpu")
    factor = plain.patch // stride
    tokens = [memory.tokens_of(info, size) for info in (plain, fine)]
    assert tokens == [1 + 200**2, 1 + (199 * factor + 1) ** 2]
    matrix = [memory.whole_bytes(6, count) for count in tokens]
    assert matrix[1] / matrix[0] == pytest.approx(factor**4, rel=0.02)
    pairs = [memory.multiplications(info, size) for info in (plain, fine)]
    assert pairs[1] / pairs[0] > 0.9 * factor**4 / (1 + 12 * 384 / (2 * tokens[0]))
    request = RolloutRequest()
    needed = [memory.needed_bytes(info, count, request, cpu)
              for info, count in zip((plain, fine), tokens, strict=True)]  # fmt: skip
    assert needed[1] > 0.5 * factor**4 * 2 * 4 * tokens[0] ** 2
    free = 8e9
    sides = [memory.largest_side(info, HeadsRequest(), cpu, free) for info in (plain, fine)]
    assert sides[1] < sides[0]
    assert sides[1] % 8 == 0
