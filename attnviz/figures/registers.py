"""The figure of the ``registers`` command: neurons, and what test-time registers change."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from attnviz.domain import Size
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import RANDOM, model_parts, sheet_of
from attnviz.figures.parts.histogram import step_histogram
from attnviz.figures.parts.layout import GAP, MARGIN, Rect
from attnviz.figures.parts.masks import mask_outline
from attnviz.figures.parts.panels import (
    Edges,
    Panel,
    image_panel,
    map_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.scale import Limits, common_limits, own_limits, scale_text
from attnviz.figures.parts.series import Series, legend_height, series_plot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import DrawStyle, ModelInfo
    from attnviz.domain.registers import BeforeAfter, RegistersMaps, ShownImage
    from attnviz.figures.parts.page import Page, Sheet

BEFORE, AFTER, REGISTER, CLS = "#d55e00", "#0072b2", "#009e73", "#5f5f5f"
_PLOT = 1.45
_NARROW = 4.6
"""Width, in inches, below which plots stand below each other."""
_BAR = 0.125
_MOST_BARS = 10
_HEADING = 0.2


def draw_registers(maps: RegistersMaps, model: ModelInfo, style: DrawStyle) -> tuple[Figure, ...]:
    """Norms and attention over the layers, the histogram of norms, the strongest neurons, maps.

    model: without the test-time registers.
    """
    caption = [part for part in _caption(maps, model, style) if part]
    sheet = sheet_of(style, caption, RANDOM if model.random_weights else "")
    norms, masses = _norm_series(maps), _mass_series(maps)
    whose = "CLS" if model.has_cls else "all patches"
    plots = [
        partial(series_plot, series=norms, heading="Norm of tokens by layer"),
        partial(series_plot, series=masses, heading=f"Share of the attention of {whose} by layer"),
    ]
    heights = [_PLOT + legend_height(each, _slot(sheet)) for each in (norms, masses)]
    _plots(sheet, plots, heights)
    sheet.skip(0.04)
    bars = partial(_neuron_bars, maps=maps)
    _plots(sheet, [partial(_histogram, maps=maps), bars], [_PLOT, _bars_height(maps)])
    for shown in maps.shown:
        panel_rows(sheet, _panels(shown, style, model), panel_aspect(shown.image))
    return sheet.figures()


def _caption(maps: RegistersMaps, model: ModelInfo, style: DrawStyle) -> list[str]:
    neurons = maps.neurons
    registers = "1 register" if maps.count == 1 else f"{maps.count} registers"
    images = "1 image" if maps.images == 1 else f"{maps.images:,} images"
    sizes = dict.fromkeys(theme.size_text(each.image.geometry.model_input) for each in maps.shown)
    above = f"norm above {theme.number(neurons.threshold, 4)}"
    within = f"layer {neurons.layer} of {theme.range_text(0, model.depth - 1)}"
    patches = f"{neurons.outliers:,} of {maps.patch_norm.before.size:,} patches"
    return [
        *model_parts(model),
        f"{images}, {neurons.images:,} with outliers",
        f"input {', '.join(sizes)}",
        model.patches_text if model.stride else "",
        f"outliers: {patches}, {above} in {within}",
        f"neurons of {_layers(neurons.max_layer)}, score: mean |activation| on outliers",
        f"after: {registers} at test time, fed by {_count(len(neurons.neurons))}",
        "curves: means over the images",
        scale_text(style),
    ]


def _count(neurons: int) -> str:
    return "1 neuron" if neurons == 1 else f"{neurons} neurons"


def _layers(last: int) -> str:
    return f"layers {theme.range_text(0, last)}" if last else "layer 0"


def _norm_series(maps: RegistersMaps) -> list[Series]:
    largest, median, cls = maps.largest_norm, maps.median_norm, maps.cls_norm
    series = [
        Series("Largest patch, before", largest.before, BEFORE, 1.8),
        Series("Largest patch, after", largest.after, AFTER, 1.8),
        Series("Median patch, before", median.before, BEFORE, 1.0, dashed=True),
        Series("Median patch, after", median.after, AFTER, 1.0, dashed=True),
        Series("Register", maps.register_norm, REGISTER, 1.8),
    ]
    if cls is not None:
        series.append(Series("CLS, before", cls.before, CLS, 1.0))
        series.append(Series("CLS, after", cls.after, theme.INK, 1.0, dashed=True))
    return series


def _mass_series(maps: RegistersMaps) -> list[Series]:
    return [
        Series("Outlier patches, before", maps.outlier_mass.before, BEFORE, 1.3),
        Series("The same patches, after", maps.outlier_mass.after, AFTER, 1.3),
        Series("Register", maps.register_mass, REGISTER, 1.8),
    ]


def _slot(sheet: Sheet) -> float:
    """Width of one of two plots."""
    return sheet.width if sheet.width < _NARROW else (sheet.width - 2 * GAP) / 2


def _plots(
    sheet: Sheet, plots: Sequence[Callable[[Page, Rect], None]], heights: list[float]
) -> None:
    """Two plots side by side, or below each other on a narrow page."""
    slot = _slot(sheet)
    if slot == sheet.width:
        for plot, height in zip(plots, heights, strict=True):
            page = sheet.room(height)
            plot(page, Rect(MARGIN, page.y, slot, height))
            page.y += height + 0.06
        return
    page = sheet.room(max(heights))
    for index, (plot, height) in enumerate(zip(plots, heights, strict=True)):
        plot(page, Rect(MARGIN + index * (slot + 2 * GAP), page.y, slot, height))
    page.y += max(heights) + 0.06


def _histogram(page: Page, rect: Rect, maps: RegistersMaps) -> None:
    neurons = maps.neurons
    after = int((maps.patch_norm.after > neurons.threshold).sum())
    heading = f"Patches by norm: {neurons.outliers:,} above the threshold, {after:,} after"
    step_histogram(
        page,
        rect,
        (maps.patch_norm.before, BEFORE),
        (maps.patch_norm.after, AFTER),
        heading,
        neurons.threshold,
    )


def _bars_height(maps: RegistersMaps) -> float:
    return _HEADING + _BAR * min(_MOST_BARS, max(1, len(maps.neurons.neurons)))


def _neuron_bars(page: Page, rect: Rect, maps: RegistersMaps) -> None:
    """The strongest neurons as bars from zero, each with layer, index and score."""
    found = maps.neurons.neurons
    shown = found[:_MOST_BARS]
    heading = "Strongest neurons, by score"
    if len(shown) < len(found):
        heading = f"Strongest neurons, {len(shown)} of {len(found)}, by score"
    page.text(rect.left, rect.top + 0.1, heading, size=theme.TITLE_PT)
    names = [f"layer {layer}, neuron {index}" for layer, index, _ in shown]
    values = [theme.number(score, 3) for _, _, score in shown]
    left = rect.left + max(map(theme.text_width, names)) + 0.06
    length = rect.right - left - max(map(theme.text_width, values)) - 0.06
    highest = max((score for _, _, score in shown), default=0.0) or 1.0
    for row, ((_, _, score), name, value) in enumerate(zip(shown, names, values, strict=True)):
        top = rect.top + _HEADING + row * _BAR
        base = top + _BAR - 0.035
        page.text(left - 0.05, base, name, align="right", colour=theme.QUIET)
        width = max(length * score / highest, 0.005)
        page.block(Rect(left, top + 0.015, width, _BAR - 0.03), REGISTER)
        page.text(left + width + 0.04, base, value)


def _panels(shown: ShownImage, style: DrawStyle, model: ModelInfo) -> list[Panel]:
    whose = "CLS" if model.has_cls else "Mean"
    edges, margins = _edges(shown), shown.image.geometry.margins
    panels = [
        image_panel(shown.image, edges),
        *_pair((f"{whose} attention", whose), shown.attention, style, ()),
        *_pair(("Norm",), shown.norm, style, edges),
    ]
    return [replace(panel, margins=margins) for panel in panels]


def _pair(
    names: tuple[str, ...], pair: BeforeAfter, style: DrawStyle, edges: tuple[Edges, ...]
) -> list[Panel]:
    """The maps before and after, each with its colour bar."""
    shared = common_limits(list(pair), style)
    panels = []
    for when, values in (("before", pair.before), ("after", pair.after)):
        titles = tuple(f"{name}, {when}" for name in (*names,))
        limits: Limits = shared or own_limits(values)
        panel = map_panel(titles, values, style, limits, edges=edges if when == "before" else ())
        panels.append(replace(panel, limits=limits))
    return panels


def _edges(shown: ShownImage) -> tuple[Edges, ...]:
    """The outlines of the outliers, in panel coordinates."""
    grid = Size(*shown.outliers.shape)
    runs = tuple(run / (grid.width, grid.height) for run in mask_outline(shown.outliers))
    return (Edges(runs, BEFORE, "#ffffff"),)
