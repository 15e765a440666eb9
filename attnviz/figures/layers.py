"""The figure of the ``layers`` command: how attention changes with depth."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import (
    entropy_text,
    layers_text,
    prefix_text,
    query_text,
    sheet_with_caption,
)
from attnviz.figures.parts.colour_bars import own_scales_bar, shared_bar
from attnviz.figures.parts.map_table import OWN_SCALES, Heading, draw_head_table
from attnviz.figures.parts.overview import overview
from attnviz.figures.parts.panels import (
    image_panel,
    map_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.plots import curve_lines, head_legend
from attnviz.figures.parts.scale import common_limits, scale_text
from attnviz.figures.parts.sinks import SINKS_TEXT, draw_sinks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import DrawStyle, FigureImage, LayersMaps, ModelInfo
    from attnviz.figures.parts.overview import Plot
    from attnviz.figures.parts.page import Sheet


def draw_layers(
    maps: LayersMaps,
    image: FigureImage,
    model: ModelInfo,
    style: DrawStyle,
    *,
    each_head: bool = False,
) -> tuple[Figure, ...]:
    """The image, entropy and distance over depth, and the map of every layer.

    The maps are means over the heads; with ``each_head`` those of every head, a row per layer and a
    column per head.
    """
    means = maps.attention.mean(axis=1)  # (L, gh, gw)
    shared = common_limits(maps.attention if each_head else means, style)
    own = f"colours: {OWN_SCALES}"
    parts = [
        layers_text(maps.layers, model),
        query_text(maps.query),
        own if each_head and not shared else scale_text(style),
        entropy_text(maps.tokens, len(maps.heads)),
        prefix_text(maps.prefix, model),
        "" if maps.received is None else SINKS_TEXT,
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    _overview(sheet, maps, image, compact=each_head)
    if each_head:
        rows = [Heading((f"Layer {layer}",)) for layer in maps.layers]
        draw_head_table(sheet, rows, maps.heads, maps.attention, panel_aspect(image), shared)
    else:
        entropies = maps.entropy.mean(axis=1).tolist()
        panels = [
            map_panel(
                (f"Layer {layer} · H {entropy:.2f}", f"{layer} · H {entropy:.2f}"),
                values,
                style,
                shared,
            )
            for layer, values, entropy in zip(maps.layers, means, entropies, strict=True)
        ]
        panel_rows(sheet, panels, panel_aspect(image), at_least=4)
    if shared:
        shared_bar(sheet, shared, "Attention")
    elif each_head:
        own_scales_bar(sheet)
    if maps.received is not None:
        draw_sinks(sheet, maps, image, model)
    return sheet.figures()


def _overview(sheet: Sheet, maps: LayersMaps, image: FigureImage, *, compact: bool) -> None:
    """The image and, beside or below it, the curves over depth with their legend.

    compact: leaves as much of the page as possible to the maps.
    """
    limit = math.log(maps.tokens)
    colours = [theme.head_colour(head) for head in maps.heads]
    lines = partial(curve_lines, positions=maps.layers, colours=colours)
    bound = (limit, f"uniform {limit:.2f}")
    plots: list[Plot] = [
        partial(lines, values=maps.entropy, heading="Entropy H by layer, nats", bound=bound)
    ]
    if maps.distance is not None:
        heading = "Attention distance by layer, px"
        plots.append(partial(lines, values=maps.distance, heading=heading))
    overview(sheet, image_panel(image), panel_aspect(image), plots, compact=compact)
    head_legend(sheet, maps.heads)
    sheet.skip(0.07)
