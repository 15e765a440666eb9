"""The figure of the ``evolve`` command: how attention changes from checkpoint to checkpoint."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Rows
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import layer_text, prefix_text, query_text, sheet_with_caption
from attnviz.figures.parts.colour_bars import own_scales_bar, shared_bar
from attnviz.figures.parts.layout import GAP, MARGIN, Rect
from attnviz.figures.parts.map_table import (
    OWN_SCALES,
    Cells,
    Heading,
    content_of,
    draw_table,
    fit_grid,
)
from attnviz.figures.parts.masks import mask_outline
from attnviz.figures.parts.overlay import colour
from attnviz.figures.parts.overview import image_at, overview
from attnviz.figures.parts.panels import (
    TITLE_INCHES,
    Edges,
    Panel,
    image_panel,
    map_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.plots import curve_lines, legend
from attnviz.figures.parts.scale import Limits, common_limits, scale_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import BoolArray, DrawStyle, EvolutionMaps, FigureImage, ModelInfo
    from attnviz.figures.parts.overview import Plot
    from attnviz.figures.parts.page import Sheet

_SIDE_MIN = 1.9
"""Minimum width beside the table, in inches, for the image and the curves."""
_SIDE_MAX = 3.2
_PLOT = 1.5
_TALLEST, _TALLEST_NARROW = 5.6, 3.8
"""Height of all rows of a block, in inches, that leaves room on the page for image and curves."""
_NARROW = 5.0
_LEGEND = 0.45
"""Height below the curves, in inches, for the legend."""
_DETAIL = 256
"""Maximum number of steps per side in an object's outline."""


def draw_evolution(
    maps: EvolutionMaps,
    image: FigureImage,
    model: ModelInfo,
    style: DrawStyle,
    *,
    mask: BoolArray | None = None,
    threshold: float = 0.0,
) -> tuple[Figure, ...]:
    """A column per checkpoint and a row per head or layer; image, entropy and Jaccard index.

    mask: the pixels of the object, outlined on the image. threshold: that of the Jaccard index.
    """
    shared = common_limits([maps.attention], style)
    sheet = sheet_with_caption(model, image, style, _caption(maps, model, style, threshold))
    aspect = panel_aspect(image)
    rows = [
        Heading((f"{_kind(maps)} {index}",), shade)
        for index, shade in zip(maps.indices, _colours(maps), strict=True)
    ]
    columns = [Heading(titles) for titles in _titles(maps)]
    content = content_of(maps.attention.swapaxes(0, 1), style, shared)
    fitted = partial(fit_grid, sheet.width, rows, len(columns), aspect, below=not shared)
    cells = fitted(tallest=_TALLEST)
    if sheet.width < _NARROW and cells.blocks == 1:
        cells = fitted(tallest=_TALLEST_NARROW)
    original = image_panel(image, _object(mask, image))
    plots = _plots(maps)
    top = sheet.pages[-1].y
    draw_table(sheet, rows, columns, content, cells)
    beside = _beside(sheet, cells, top, original, aspect, plots)
    if not beside:
        sheet.skip(0.04)
        _colour_bar(sheet, shared)
        sheet.skip(0.04)
        overview(sheet, original, aspect, plots, below=_LEGEND)
    legend(sheet, _entries(maps))
    if beside:
        sheet.skip(0.07)
        _colour_bar(sheet, shared)
    return sheet.figures()


def _colour_bar(sheet: Sheet, shared: Limits | None) -> None:
    if shared:
        shared_bar(sheet, shared, "Attention")
    else:
        own_scales_bar(sheet)


def draw_frames(
    maps: EvolutionMaps, image: FigureImage, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """One page per checkpoint, all of one size: the image and the map of every row."""
    shared = common_limits([maps.attention], style)
    limits = shared or Limits(0.0, float(maps.attention.max()))
    frames = []
    for name, attention in zip(maps.names, maps.attention, strict=True):
        sheet = sheet_with_caption(model, image, style, _caption(maps, model, style, 0.0))
        page = sheet.pages[-1]
        page.y += 0.16
        page.text(MARGIN, page.y - 0.045, theme.printable(name), size=theme.TITLE_PT, bold=True)
        panels = [image_panel(image)]
        for index, values in zip(maps.indices, attention, strict=True):
            title = f"{_kind(maps)} {index}"
            panels.append(map_panel((title,), values, style, limits))
        panel_rows(sheet, panels, panel_aspect(image))
        shared_bar(sheet, limits, "Attention")
        frames.append(sheet.figures()[0])
    return tuple(frames)


def _caption(
    maps: EvolutionMaps, model: ModelInfo, style: DrawStyle, threshold: float
) -> list[str]:
    count = len(maps.heads)
    parts = ["layers: " + (f"mean of {count} heads" if count > 1 else f"head {maps.heads[0]}")]
    if maps.layer is not None:
        parts = [layer_text(maps.layer, model)]
    if maps.jaccard is not None and threshold:
        parts.append(
            f"Jaccard: of the cells that hold {100 * threshold:.0f} % of a map, with the object"
        )
    own = f"colours: {OWN_SCALES}"
    shared = common_limits([maps.attention], style) is not None
    return [
        *parts,
        query_text(maps.query),
        scale_text(style) if shared else own,
        prefix_text(maps.prefix, model),
    ]


def _kind(maps: EvolutionMaps) -> str:
    return "Head" if maps.rows is Rows.HEADS else "Layer"


def _titles(maps: EvolutionMaps) -> list[tuple[str, ...]]:
    names = [theme.printable(name) for name in maps.names]
    if maps.steps is None:
        return [(name,) for name in names]
    return [
        (name,) if step is None else (name, str(step))
        for name, step in zip(names, maps.steps, strict=True)
    ]


def _colours(maps: EvolutionMaps) -> list[str]:
    """Heads have the same colours as in all figures; layers go from dark to light."""
    if maps.rows is Rows.HEADS:
        return [theme.head_colour(index) for index in maps.indices]
    levels = np.linspace(0, 0.88, len(maps.indices), dtype=np.float32)
    shades = colour(levels, Limits(0.0, 1.0), "viridis").tolist()
    return [theme.hex_of(shade) for shade in shades]


def _entries(maps: EvolutionMaps) -> list[tuple[str, str]]:
    names = (f"{_kind(maps)} {index}" for index in maps.indices)
    return list(zip(names, _colours(maps), strict=True))


def _counted(name: str) -> str:
    """What the number in a name counts: step, for ``Step 500``."""
    word, _, number = name.rpartition(" ")
    return word.lower() if word and number.isdigit() else "number"


def _plots(maps: EvolutionMaps) -> list[Plot]:
    positions = maps.numbers or tuple(range(1, len(maps.names) + 1))
    by = "checkpoint" if maps.numbers is None else _counted(maps.names[0])
    limit = math.log(maps.tokens)
    lines = partial(curve_lines, positions=positions, colours=_colours(maps))
    bound = (limit, f"uniform {limit:.2f}")
    heading = f"Entropy H by {by}, nats"
    plots: list[Plot] = [partial(lines, values=maps.entropy, heading=heading, bound=bound)]
    if maps.jaccard is not None:
        plots.append(partial(lines, values=maps.jaccard, heading=f"Jaccard index by {by}"))
    return plots


def _beside(
    sheet: Sheet,
    cells: Cells,
    top: float,
    original: Panel,
    aspect: float,
    plots: Sequence[Plot],
) -> bool:
    """The image and the curves to the right of the table, if there is room; returns whether."""
    page = sheet.pages[-1]
    left = MARGIN + cells.width() + 3 * GAP
    width = min(sheet.width + MARGIN - left, _SIDE_MAX)
    if len(sheet.pages) > 1 or cells.blocks > 1 or width < _SIDE_MIN:
        return False
    panel = min(width, 1.6 * aspect)
    needed = TITLE_INCHES + panel / aspect + 0.1 + len(plots) * (_PLOT + 0.06)
    if needed > sheet.limit - top:
        return False
    y = top
    image_at(page, original, Rect(left, y, panel, panel / aspect))
    y += TITLE_INCHES + panel / aspect + 0.1
    for plot in plots:
        plot(page, Rect(left, y, width, _PLOT))
        y += _PLOT + 0.06
    page.y = max(page.y, y)
    return True


def _object(mask: BoolArray | None, image: FigureImage) -> tuple[Edges, ...]:
    """The outline of the object in panel coordinates, 0..1 over what the model saw."""
    if mask is None:
        return ()
    stride = max(1, -(-max(mask.shape) // _DETAIL))
    region = image.geometry.region
    origin = np.array([region.left, region.top])
    size = np.array([region.right - region.left, region.bottom - region.top])
    runs = [(run * stride - origin) / size for run in mask_outline(mask[::stride, ::stride])]
    inside = tuple(run for run in runs if run.min() >= -1e-6 and run.max() <= 1 + 1e-6)
    return (Edges(inside, "#ffffff", "#000000", 0.6, on_image=True),) if inside else ()
