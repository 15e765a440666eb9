"""Properties of saved figures: places, colours, fonts, bytes, names."""

from __future__ import annotations

import dataclasses
import gc
import io
import re
import shutil
import subprocess

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import RendererAgg

from attnviz.domain import Box, DrawStyle, HeadsMaps, Interpolation, PatchMaps, Scale
from attnviz.domain.kinds import HeadsRequest
from attnviz.errors import UsageError
from attnviz.figures import draw, draw_comparison, overlay_images
from attnviz.figures.parts import theme
from attnviz.figures.parts.overlay import model_view
from attnviz.figures.parts.plots import _step
from attnviz.figures.parts.theme import TIMES, TO
from tests.figures import samples
from tests.figures.rendering import (
    maps_of,
    part_of,
    pixels_of,
    png,
    rasters_of,
    word_boxes,
    words_of,
)

STYLE = DrawStyle(dpi=100)
INFERNO = mpl.colormaps["inferno"]


def _hot(grid, *cells, value=0.5):
    values = np.zeros((1, *grid), np.float32)
    for row, column in cells:
        values[0, row, column] = value
    return HeadsMaps(
        values, np.full((1, 1), 0.5, np.float32), np.ones(1, np.float32), None, 0, (0,)
    )


def _blank(height, width, grid, region=None):
    pixels = np.full((height, width, 3), 90, np.uint8)
    return samples.image_of(pixels, grid, name="blank.png", region=region)


def _as_rgb(share):
    return np.array(INFERNO(share, bytes=True))[:3]


def overlays(maps, image, style):
    return list(overlay_images(maps, image, style, HeadsRequest()).values())


@pytest.mark.parametrize("how", Interpolation)
def test_overlay_is_hot_in_its_own_cell_and_nowhere_else(how):
    """An 8 x 18 grid of 8 px cells, hot at row 1, column 5: y 8..16, x 40..48."""
    image = _blank(64, 144, (8, 18))
    (overlay,) = overlays(_hot((8, 18), (1, 5)), image, DrawStyle(interpolation=how, alpha=1.0))
    changed = (overlay != image.pixels).any(axis=2)
    y, x = np.nonzero(changed)
    reach = 0 if how is Interpolation.NEAREST else 4
    assert (y.min(), y.max() + 1) == (8 - reach, 16 + reach)
    assert (x.min(), x.max() + 1) == (40 - reach, 48 + reach)
    assert abs(y.mean() - 11.5) < 0.5
    assert abs(x.mean() - 43.5) < 0.5


def test_map_in_the_figure_is_hot_in_its_own_cell():
    figure = draw(_hot((8, 18), (1, 5)), _blank(64, 144, (8, 18)), samples.model_info(), STYLE)[0]
    (drawn,) = maps_of(figure)
    part = part_of(figure, drawn)
    bright = (part == _as_rgb(1.0)).all(axis=2)
    y, x = np.nonzero(bright)
    high, wide = part.shape[:2]
    assert abs(y.min() - high * 1 / 8) <= 1
    assert abs(y.max() + 1 - high * 2 / 8) <= 1
    assert abs(x.min() - wide * 5 / 18) <= 1
    assert abs(x.max() + 1 - wide * 6 / 18) <= 1
    assert bright.sum() == (np.ptp(y) + 1) * (np.ptp(x) + 1)


def test_overlay_after_a_crop_colours_only_the_crop():
    image = _blank(250, 250, (31, 31), region=Box(0.0, 0.0, 248.0, 248.0))
    (overlay,) = overlays(_hot((31, 31), (30, 30)), image, DrawStyle(alpha=1.0))
    y, x = np.nonzero((overlay != image.pixels).any(axis=2))
    assert (y.min(), y.max(), x.min(), x.max()) == (240, 247, 240, 247)


def test_overlay_with_padding_is_cut_at_the_image():
    image = _blank(250, 250, (32, 32), region=Box(0.0, 0.0, 256.0, 256.0))
    (overlay,) = overlays(_hot((32, 32), (31, 31)), image, DrawStyle(alpha=1.0))
    y, x = np.nonzero((overlay != image.pixels).any(axis=2))
    assert overlay.shape == (250, 250, 3)
    assert (y.min(), y.max(), x.min(), x.max()) == (248, 249, 248, 249)


def test_overlay_of_a_squashed_image_has_the_image_s_own_shape():
    image = _blank(334, 500, (28, 28))
    (overlay,) = overlays(_hot((28, 28), (0, 27)), image, DrawStyle(alpha=1.0))
    y, x = np.nonzero((overlay != image.pixels).any(axis=2))
    assert overlay.shape == (334, 500, 3)
    assert (y.min(), y.max()) == (0, round(334 / 28) - 1)
    assert (x.min(), x.max()) == (round(500 * 27 / 28), 499)


def test_shared_scale_shows_a_weak_head_ten_times_dimmer():
    values = np.zeros((2, 4, 4), np.float32)
    values[0, 1, 1], values[1, 2, 2] = 0.2, 0.02
    rest = (1 - values.sum(axis=(1, 2)))[:, None]
    maps = HeadsMaps(values, rest, np.ones(2, np.float32), None, 0, (0, 1))
    image = _blank(64, 64, (4, 4))
    shared = draw(maps, image, samples.model_info(), DrawStyle(dpi=100, scale=Scale.SHARED))[0]
    own = draw(maps, image, samples.model_info(), STYLE)[0]
    brightest = {}
    for name, figure in (("shared", shared), ("own", own)):
        mean, _, first, second = maps_of(figure)
        brightest[name] = [
            part_of(figure, drawn).reshape(-1, 3).max(axis=0).tolist()
            for drawn in (mean, first, second)
        ]
    table = (np.array([0.1, 0.2, 0.02]) / 0.2 * 256).clip(max=255).astype(int)
    whole = [_as_rgb(int(place)).tolist() for place in table]
    assert brightest["shared"][1:] == [whole[1], whole[2]]
    assert brightest["shared"][0] == whole[0]  # the mean of the raw maps, not of the scaled ones
    assert brightest["own"][1] == brightest["own"][2] == whole[1]
    assert "0.20" in words_of(shared)
    assert {"0.20", "0.020", "0.10"} <= set(words_of(own))


def test_fixed_limits_reach_the_colour_bar():
    style = DrawStyle(scale=Scale.FIXED, fixed_limits=(0.0, 0.075), dpi=60)
    maps = samples.heads_maps((4, 4))
    figure = draw(maps, _blank(64, 64, (4, 4)), samples.model_info(), style)[0]
    assert "0.075" in words_of(figure)


def test_flat_and_empty_maps_draw():
    for level in (0.0, 0.01):
        values = np.full((2, 3, 3), level, np.float32)
        rest = (1 - values.sum(axis=(1, 2)))[:, None]
        maps = HeadsMaps(values, rest, np.zeros(2, np.float32), None, 0, (0, 1))
        for scale in (Scale.PANEL, Scale.SHARED):
            style = DrawStyle(scale=scale, dpi=50)
            figures = draw(maps, _blank(9, 9, (3, 3)), samples.model_info(), style, threshold=0.6)
            assert png(figures[0])


def test_numbers_of_patches_that_meet_stand_apart():
    image = _blank(200, 200, (10, 10))
    for cells in ([(3, 3), (3, 3), (3, 4)], [(0, 9)] * 4, [(9, 0), (9, 0)]):
        maps = samples.patch_maps((10, 10), cells, 2)
        figure = draw(maps, image, samples.model_info(heads=2), STYLE)[0]
        tags = [box for words, box in word_boxes(figure) if words in {"1", "2", "3", "4"}]
        assert len(tags) == len(cells)
        for place, one in enumerate(tags):
            for other in tags[:place]:
                across = min(one[2], other[2]) - max(one[0], other[0])
                along = min(one[3], other[3]) - max(one[1], other[1])
                assert across <= 0 or along <= 0, (cells, place)


@pytest.mark.parametrize("cell", [(0, 0), (0, 20), (13, 0), (13, 20), (6, 10)])
def test_the_number_of_a_patch_does_not_cover_it(cell):
    image = _blank(112, 168, (14, 21))
    maps = samples.patch_maps((14, 21), [cell], 2)
    figure = draw(maps, image, samples.model_info(heads=2), STYLE)[0]
    panel = rasters_of(figure)[0].rect
    left, right = (panel.left + panel.width * (cell[1] + k) / 21 for k in (0, 1))
    top, bottom = (panel.top + panel.height * (cell[0] + k) / 14 for k in (0, 1))
    ((x0, y0, x1, y1),) = [box for text, box in word_boxes(figure) if text == "1"]
    height = figure.get_figheight()
    x0, x1, y0, y1 = x0 / 100, x1 / 100, height - y1 / 100, height - y0 / 100
    assert x1 < left or right < x0 or y1 < top or bottom < y0
    assert panel.left <= x0
    assert x1 <= panel.right
    assert panel.top <= y0
    assert y1 <= panel.bottom


@pytest.mark.parametrize("grid", [(14, 21), (14, 14), (21, 14)])
def test_queries_keys_and_values_of_four_heads_have_a_page_each(grid):
    image = _blank(8 * grid[0], 8 * grid[1], grid)
    figures = draw(samples.qkv_maps(grid, 4), image, samples.model_info(heads=4), STYLE)
    assert len(figures) == 3


@pytest.mark.parametrize("width", [3.35, 7.0])
@pytest.mark.parametrize(("size", "grid"), [((64, 1200), (8, 150)), ((1200, 64), (150, 8))])
def test_numbers_of_patches_stand_by_them_in_a_strip(width, size, grid):
    along = 0 if grid[0] > grid[1] else 1
    cells = [tuple(np.array(place) * np.array(grid) // 6) for place in ((1, 1), (3, 3), (5, 5))]
    maps = samples.patch_maps(grid, cells, 2)
    image = _blank(*size, grid)
    figure = draw(maps, image, samples.model_info(heads=2), DrawStyle(width=width, dpi=100))[0]
    tags = [box for words, box in word_boxes(figure) if words in {"1", "2", "3"}]
    assert len(tags) == 3
    # Left to right, or top to bottom, as their patches are.
    starts = [tag[0] if along else -tag[1] for tag in tags]
    assert starts == sorted(starts)
    assert len(set(starts)) == 3


def test_every_page_of_vectors_says_of_what_they_are():
    maps = samples.qkv_maps((4, 6), 12)
    image = _blank(64, 96, (4, 6))
    model = samples.model_info(heads=12)
    figures = draw(maps, image, model, DrawStyle(width=3.35, dpi=40))
    assert len(figures) > 3
    names = [words_of(figure)[0].split(" \N{MIDDLE DOT} ")[0] for figure in figures]
    assert names[0] == "Queries Q"
    assert names[1] == "Queries Q, continued"
    for part in ("Queries Q", "Keys K", "Values V"):
        assert sum(name.startswith(part) for name in names) == len(figures) / 3


def test_round_numbers_along_an_axis_are_two_at_least():
    assert _step(4.12, 4.98, 5) == pytest.approx(0.1)
    assert _step(0.0, 5.0, 6) == pytest.approx(1.0)
    assert _step(2.0, 2.0, 5) > 0


def test_patch_marks_stand_on_the_query():
    cells = np.array([[2, 11]], np.int64)
    values = np.full((1, 1, 8, 18), 0.5 / 144, np.float32)
    rest = np.full((1, 1, 1), 0.5, np.float32)
    maps = PatchMaps(values, rest, np.ones((1, 1), np.float32), cells, 0, (0,))
    figure = draw(maps, _blank(64, 144, (8, 18)), samples.model_info(), STYLE)[0]
    part = part_of(figure, rasters_of(figure)[0])
    y, x = np.nonzero((part > 200).all(axis=2) & (np.arange(part.shape[0]) > 0)[:, None])
    high, wide = part.shape[:2]
    in_tag = y < high * 2 / 8 - 2
    y, x = y[~in_tag], x[~in_tag]
    assert abs((y.min() + y.max() + 1) / 2 - high * 2.5 / 8) < 2
    assert abs((x.min() + x.max() + 1) / 2 - wide * 11.5 / 18) < 2


@pytest.mark.parametrize("image_format", ["pdf", "svg"])
def test_vector_files_keep_text_as_text(image_format):
    image = samples.image_of(samples.photograph(), (4, 6), name="my_$x_$y.png")
    figure = draw(samples.heads_maps((4, 6)), image, samples.model_info(), STYLE)[0]
    stream = io.BytesIO()
    figure.savefig(stream, format=image_format)
    data = stream.getvalue()
    if image_format == "svg":
        assert b">my_$x_$y.png</text>" in data
        assert b"DejaVu Sans" in data
        return
    assert b"/Type3" not in data
    assert b"/TrueType" in data or b"/CIDFontType2" in data
    if shutil.which("pdftotext"):
        text = subprocess.run(
            ["pdftotext", "-", "-"], input=data, capture_output=True, check=True
        ).stdout.decode()
        assert "my_$x_$y.png" in text
        assert "dino_vits8" in text


def test_cells_in_pdf_are_whole_multiples_of_pixels():
    image = samples.image_of(samples.photograph(), (7, 11))
    figure = draw(samples.heads_maps((7, 11), 1), image, samples.model_info(), STYLE)[0]
    stream = io.BytesIO()
    figure.savefig(stream, format="pdf")
    sizes = re.findall(rb"/Height (\d+)|/Width (\d+)", stream.getvalue())
    heights = [int(h) for h, _ in sizes if h]
    widths = [int(w) for _, w in sizes if w]
    crisp = [(h, w) for h, w in zip(heights, widths, strict=True) if h * 11 == w * 7]
    assert crisp
    assert all(h % 7 == 0 and h >= 7 * 8 for h, _ in crisp)


@pytest.mark.parametrize(
    ("image_format", "metadata"),
    [("png", {"Software": None}), ("pdf", {"CreationDate": None}), ("svg", {"Date": None})],
)
def test_two_drawings_are_the_same_bytes(image_format, metadata):
    made = []
    for _ in range(2):
        image = samples.image_of(samples.photograph(), (7, 11))
        figure = draw(samples.layers_maps((7, 11), 3), image, samples.model_info(), STYLE)[0]
        stream = io.BytesIO()
        figure.savefig(stream, format=image_format, metadata=metadata)
        made.append(stream.getvalue())
    assert made[0] == made[1]


def test_the_user_s_own_settings_change_nothing():
    def drawn():
        image = samples.image_of(samples.photograph(), (7, 11))
        return draw(samples.score_maps((7, 11)), image, samples.model_info(), STYLE)[0]

    plain = pixels_of(drawn())
    changes = {
        "savefig.bbox": "tight",
        "figure.autolayout": True,
        "font.family": "serif",
        "text.color": "red",
        "lines.linewidth": 9,
        "image.cmap": "jet",
        "patch.linewidth": 5,
        "savefig.dpi": 30,
        "text.parse_math": True,
    }
    with mpl.rc_context(changes):
        changed = pixels_of(drawn())
    np.testing.assert_array_equal(plain, changed)


@pytest.mark.parametrize(
    "name",
    ["Ba$$in.png", "x$_$y.png", "cost_$5_^$6.png", "a$b$.png", "50%_off.png", "quote'\".png"],
)
def test_names_are_shown_as_they_are(name):
    image = samples.image_of(samples.photograph(), (4, 6), name=name)
    figure = draw(samples.score_maps((4, 6)), image, samples.model_info(), DrawStyle(dpi=40))[0]
    assert png(figure)
    assert name in words_of(figure)


@pytest.mark.parametrize("name", ["猫.png", "a\nb\tc.png", "\udcff.png", "x" * 250, "e\u0301.png"])
def test_names_beyond_the_font_give_squares_and_no_warning(name):
    image = samples.image_of(samples.photograph(), (4, 6), name=name)
    figure = draw(samples.score_maps((4, 6)), image, samples.model_info(), DrawStyle(dpi=40))[0]
    for image_format in ("png", "pdf", "svg"):
        figure.savefig(io.BytesIO(), format=image_format)


def test_the_foot_tells_model_layer_sizes_scale_and_prefix():
    model = samples.model_info(name="dinov2_vits14_reg", prefix=5, registers=4, patch=14)
    maps = samples.heads_maps((6, 9), prefix=5)
    figure = draw(maps, samples.image_of(samples.photograph(), (6, 9), 14), model, STYLE)[0]
    foot = " · ".join(words_of(figure))
    cls, registers = 100 * maps.prefix[:, 0].mean(), 100 * maps.prefix[:, 1:].sum(axis=1).mean()
    for part in (
        "dinov2_vits14_reg",
        f"layer 11 of 0{TO}11",
        f"input 84{TIMES}126",
        f"grid 6{TIMES}9 of 14 px patches",
        "each panel from its lowest to its highest value",
        f"{cls:.1f} % on CLS",
        f"{registers:.1f} % on 4 registers" if registers < 9.95 else f"{registers:.0f} % on 4 reg",
    ):
        assert part in foot
    assert "RANDOM WEIGHTS" not in foot


def test_the_foot_of_the_score_tells_the_share_of_cls_and_registers():
    model = samples.model_info(prefix=5, registers=4)
    maps = samples.score_maps((4, 6), prefix=5)
    figure = draw(maps, _blank(32, 48, (4, 6)), model, STYLE)[0]
    total = maps.score.sum() + maps.prefix.sum()
    foot = " ".join(words_of(figure))
    assert f"{100 * maps.prefix[0] / total:.1f} % on CLS" in foot
    assert f"{100 * maps.prefix[1:].sum() / total:.0f} % on 4 registers" in foot


def test_the_foot_says_what_only_shapes_chose_and_what_was_assumed():
    """Weights of the shape of ViT-B/16 are not called DINO's."""
    model = samples.model_info(
        name="mae_pretrain_vit_base.pth", shape="ViT-B/16", statistics_assumed=True
    )
    image = _blank(32, 48, (4, 6))
    row = samples.compared_row(("a",), image, samples.model_info(heads=2))
    row = dataclasses.replace(row, model=model, label=model.name)
    figures = [
        draw(samples.heads_maps((4, 6)), image, model, STYLE)[0],
        draw_comparison([samples.only(row, "mean")], STYLE)[0],
    ]
    for figure in figures:
        foot = " ".join(words_of(figure))
        assert "mae_pretrain_vit_base.pth, shape of ViT-B/16" in foot
        assert "mean and std assumed" in foot
    (known,) = draw(samples.score_maps((4, 6)), image, samples.model_info(), STYLE)
    assert "assumed" not in " ".join(words_of(known))


@pytest.mark.parametrize("width", [2.0, 3.35, 7.0])
def test_random_weights_are_said(width):
    model = samples.model_info(random_weights=True)
    image = samples.image_of(samples.photograph(), (4, 6))
    for maps in (samples.rollout_maps((4, 6)), samples.score_maps((4, 6))):
        figure = draw(maps, image, model, DrawStyle(width=width, dpi=50))[0]
        assert any(words.startswith("RANDOM WEIGHTS") for words in words_of(figure))


def test_many_panels_go_on_to_further_pages_and_none_is_lost():
    maps = samples.layers_maps((4, 4), 40, 24)
    model = samples.model_info(depth=40, heads=24)
    figures = draw(maps, _blank(64, 64, (4, 4)), model, DrawStyle(dpi=40), each_head=True)
    assert len(figures) > 1
    assert sum(len(maps_of(figure)) for figure in figures) == 40 * 24
    assert all(figure.get_figheight() < 9.6 for figure in figures)
    assert f"page 2 of {len(figures)}" in words_of(figures[1])


@pytest.mark.parametrize("scale", [Scale.PANEL, Scale.SHARED])
@pytest.mark.parametrize("heads", [6, 12])
@pytest.mark.parametrize("width", [3.35, 7.0])
@pytest.mark.parametrize("grid", [(14, 21), (21, 14), (14, 14)])
def test_twelve_layers_of_single_heads_fit_one_page_with_a_colour_bar(grid, heads, scale, width):
    model = samples.model_info(heads=heads)
    image = _blank(8 * grid[0], 8 * grid[1], grid)
    maps = samples.layers_maps(grid, 12, heads)
    style = DrawStyle(width=width, dpi=60, scale=scale)
    figures = draw(maps, image, model, style, each_head=True)
    assert len(figures) == 1
    drawn = maps_of(figures[0])
    assert len(drawn) == 12 * heads
    least = 0.27 if width > 4 else (0.2 if heads == 6 else 0.1)
    assert min(raster.rect.height for raster in drawn) > least
    assert max(raster.rect.right for raster in drawn) <= width
    bar = rasters_of(figures[0])[-1]
    assert bar.rect.top > max(raster.rect.bottom for raster in drawn)
    if scale is Scale.PANEL:
        assert "the number next to it" in words_of(figures[0])
        highest = {
            theme.number(float(values.max())) for values in maps.attention.reshape(-1, *grid)
        }
        assert highest <= set(words_of(figures[0]))


def test_a_head_keeps_its_colour_whichever_heads_are_chosen():
    image = _blank(64, 64, (4, 4))
    alone = samples.heads_maps((4, 4), 2, chosen=(3, 7))
    figure = draw(alone, image, samples.model_info(), STYLE)[0]
    pixels = pixels_of(figure).reshape(-1, 3)
    for colour in ((0xD5, 0x5E, 0x00), (0x1E, 0x1E, 0xA5)):  # heads 3 and 7
        assert (pixels == colour).all(axis=1).sum() > 500


def test_inputs_are_not_changed():
    image = samples.image_of(samples.photograph(), (7, 11))
    maps = samples.heads_maps((7, 11))
    before = [array.copy() for array in (image.pixels, maps.attention, maps.prefix)]
    png(draw(maps, image, samples.model_info(), STYLE, threshold=0.5)[0])
    overlays(maps, image, STYLE)
    for old, new in zip(before, (image.pixels, maps.attention, maps.prefix), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_figure_too_narrow_for_its_text_is_refused():
    image = _blank(8, 8, (4, 4))
    with pytest.raises(UsageError, match=r"figure 1\.9 inches"):
        draw(samples.score_maps((4, 4)), image, samples.model_info(), DrawStyle(width=1.9))


def test_unknown_option_is_refused():
    with pytest.raises(TypeError, match="colour"):
        draw(
            samples.score_maps((4, 4)), _blank(8, 8, (4, 4)), samples.model_info(), STYLE, colour=1
        )


def test_unknown_colour_map_is_refused_with_near_matches():
    style = DrawStyle(cmap="infenro", dpi=40)
    (figure,) = draw(samples.score_maps((4, 4)), _blank(8, 8, (4, 4)), samples.model_info(), STYLE)
    assert figure
    with pytest.raises(UsageError) as error:
        overlays(samples.heads_maps((4, 4)), _blank(8, 8, (4, 4)), style)
    assert "inferno" in error.value.hint


def test_a_padded_view_is_grey_beyond_the_image():
    image = _blank(10, 20, (4, 4), region=Box(-5.0, 0.0, 15.0, 20.0))
    seen = model_view(image, samples.Size(40, 40))
    assert (seen[:10] == 235).all()
    assert (seen[30:] == 235).all()
    assert (seen[10:30] == 90).all()


def _renderers():
    """The ids of all renderers, each of which holds a page of pixels."""
    # type(), not isinstance(): asking every object for its class wakes lazy modules of torch.
    return {id(thing) for thing in gc.get_objects() if issubclass(type(thing), RendererAgg)}


def test_a_saved_figure_leaves_no_page_of_pixels_behind():
    image = samples.image_of(samples.photograph(), (4, 6))
    gc.collect()
    gc.disable()
    try:
        before = _renderers()
        for _ in range(3):
            png(draw(samples.heads_maps((4, 6)), image, samples.model_info(), STYLE)[0])
        left = _renderers() - before
    finally:
        gc.enable()
    assert not left


def test_drawing_imports_no_torch(light_server):
    code = (
        "import sys; from tests.figures import samples; from attnviz.figures import draw;"
        "from attnviz.domain import DrawStyle;"
        "assert 'matplotlib' not in sys.modules;"
        "p = samples.image_of(samples.photograph(), (4, 6));"
        "draw(samples.score_maps((4, 6)), p, samples.model_info(), DrawStyle());"
        "assert not {'torch', 'timm', 'matplotlib.pyplot'} & set(sys.modules)"
    )
    run = light_server.run(source=code)
    assert run.returncode == 0, run.stderr


def test_an_axis_of_norms_has_two_ticks_at_least():
    maps = samples.features_maps((6, 6), [])
    norm = np.linspace(5.2, 13.2, 36, dtype=np.float32).reshape(6, 6)
    maps = dataclasses.replace(maps, norm=norm)
    style = DrawStyle(dpi=60, width=3.35)
    (figure,) = draw(maps, _blank(48, 48, (6, 6)), samples.model_info(), style)
    assert {"6", "8", "10", "12"} <= set(words_of(figure))


def test_scores_over_decades_stand_on_a_logarithmic_axis():
    maps = samples.score_maps((6, 6))
    steep = 10 ** (3 * np.linspace(0, 1, 36) ** 6 - 5)  # 1e-5, for most of them, to 0.01
    maps = dataclasses.replace(maps, score=steep.astype(np.float32).reshape(6, 6))
    (figure,) = draw(maps, _blank(48, 48, (6, 6)), samples.model_info(), STYLE)
    places = {words: left for words, (left, _, _, _) in word_boxes(figure)}
    decade = places["0.001"] - places["1e-4"]
    assert places["2e-4"] - places["1e-4"] == pytest.approx(decade * np.log10(2), abs=6)
    (plain,) = draw(samples.score_maps((6, 6)), _blank(48, 48, (6, 6)), samples.model_info(), STYLE)
    assert "1e-4" not in words_of(plain)
