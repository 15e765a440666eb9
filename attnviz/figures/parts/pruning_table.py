"""The steps of a pruning run: the image, and the score and the kept patches of every layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.figures.parts import theme
from attnviz.figures.parts.colour_bars import own_scales_bar, shared_bar
from attnviz.figures.parts.layer_columns import Row, draw_layer_columns
from attnviz.figures.parts.overlay import colour, enlarge
from attnviz.figures.parts.overview import overview
from attnviz.figures.parts.panels import Panel, dimmed_raster, image_panel, panel_aspect
from attnviz.figures.parts.plots import curve_lines
from attnviz.figures.parts.scale import common_limits, from_zero

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import (
        BoolArray,
        ByteArray,
        DrawStyle,
        FigureImage,
        FloatArray,
        Interpolation,
        ScoreMaps,
        Size,
    )
    from attnviz.figures.parts.page import Sheet
    from attnviz.figures.parts.scale import Limits

_GONE = "#c8c8c8"
"""Patches that an earlier layer dropped: a grey that no colour map has at its dark end."""

_LINE = "#0072b2"


def draw_steps(sheet: Sheet, steps: Sequence[ScoreMaps], image: FigureImage) -> None:
    """The image, the share that is kept over the layers, and a column a layer.

    Its rows are the score, the low-frequency energy where it is there, and the kept patches.
    """
    style, aspect = sheet.style, panel_aspect(image)
    shared = common_limits([step.of_present(step.score) for step in steps], style)
    kept = np.array([[100 * step.kept.mean()] for step in steps], np.float32)  # L, 1
    layers = [step.layer for step in steps]
    curve = partial(
        curve_lines,
        values=kept,
        positions=layers,
        colours=(_LINE,),
        heading="Patches kept after each layer, %",
    )
    overview(sheet, image_panel(image), aspect, [curve], below=0.0)
    rows = [_map_row("Score", steps, [step.score for step in steps], style, shared)]
    energy = [step.lfe for step in steps if step.lfe is not None]
    if energy:
        rows.append(_map_row("LFE", steps, energy, style, None))
    dimmed = [Panel(("",), dimmed_raster(image, step.kept)) for step in steps]
    rows.append(Row("Kept", dimmed, [f"{int(step.kept.sum())} patches" for step in steps]))
    names = [theme.share(step.kept.mean()) for step in steps]
    titles = [
        (f"Layer {layer} · {name}", f"{layer} · {name}", str(layer))
        for layer, name in zip(layers, names, strict=True)
    ]
    draw_layer_columns(sheet, rows, titles, aspect)
    if shared:
        shared_bar(sheet, shared, "Score")
    else:
        own_scales_bar(sheet)


def _map_row(
    name: str,
    steps: Sequence[ScoreMaps],
    maps: Sequence[FloatArray],
    style: DrawStyle,
    shared: Limits | None,
) -> Row:
    """Maps on the shared scale, or each from 0 to its maximum, which is written below it."""
    panels, texts = [], []
    for step, values in zip(steps, maps, strict=True):
        highest = float(step.of_present(values).max())
        panels.append(_map_panel(step, values, style, shared or from_zero(highest)))
        texts.append("" if shared else theme.number(highest))
    return Row(name, panels, texts)


def _map_panel(step: ScoreMaps, values: FloatArray, style: DrawStyle, limits: Limits) -> Panel:
    """A map of the patches that are left before a layer, grey where patches are gone."""
    present = np.ones(values.shape, np.bool_) if step.present is None else step.present
    known = np.where(present, values, np.float32(limits.low)).astype(np.float32)
    return Panel(("",), partial(_pixels, known, present, limits, style.cmap, style.interpolation))


def _pixels(
    values: FloatArray,
    present: BoolArray,
    limits: Limits,
    cmap: str,
    how: Interpolation,
    size: Size,
) -> ByteArray:
    from attnviz.domain import Interpolation

    pixels = colour(enlarge(values, size, how), limits, cmap)
    left = enlarge(present.astype(np.float32), size, Interpolation.NEAREST) > 0
    pixels[~left] = theme.rgb_of(_GONE)
    return pixels
