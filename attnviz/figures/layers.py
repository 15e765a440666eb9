"""The figure of the ``layers`` command: how attention changes with depth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attnviz.figures import style as ink
from attnviz.figures.caption import entropy_words, prefix_words, query_words, sheet_with_caption
from attnviz.figures.layout import GAP, MARGIN, Rect
from attnviz.figures.multiples import MULTIPLES_WORDS, draw_multiples, multiples_row
from attnviz.figures.panels import (
    TITLE_INCHES,
    map_panel,
    panel_aspect,
    panel_image,
    panel_rows,
    picture_panel,
    shared_bar,
)
from attnviz.figures.plots import depth_lines, legend
from attnviz.figures.scale import common_limits, scale_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import DrawStyle, LayersMaps, ModelInfo, Picture
    from attnviz.figures.page import Sheet

_PLOT_LEAST = 1.35
_PLOT_MOST = 1.9
_PLOT_WIDE = 1.7


def draw_layers(
    maps: LayersMaps,
    picture: Picture,
    model: ModelInfo,
    style: DrawStyle,
    *,
    each_head: bool = False,
) -> tuple[Figure, ...]:
    """The picture, entropy and distance over depth, and the map of every layer.

    The maps are means over the heads, or with ``each_head`` every head's own, layers down and heads
    across.
    """
    means = maps.attention.mean(axis=1)  # (L, gh, gw)
    shared = common_limits(maps.attention if each_head else means, style)
    own = f"colours: {MULTIPLES_WORDS}"
    parts = [
        _layers_words(maps.layers, model),
        query_words(maps.query),
        own if each_head and not shared else scale_words(style),
        entropy_words(maps.tokens, len(maps.heads)),
        prefix_words(maps.prefix, model),
    ]
    sheet = sheet_with_caption(model, picture, style, parts)
    _overview(sheet, maps, picture)
    if each_head:
        rows = [
            multiples_row(f"Layer {layer}", attention, style, shared)
            for layer, attention in zip(maps.layers, maps.attention, strict=True)
        ]
        highest = maps.attention.max(axis=(2, 3)).tolist()
        below = None if shared else [[ink.number(value) for value in row] for row in highest]
        draw_multiples(sheet, rows, maps.heads, panel_aspect(picture), below)
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
        panel_rows(sheet, panels, panel_aspect(picture), at_least=4)
    if shared:
        shared_bar(sheet, shared, "Attention")
    return sheet.figures()


def _overview(sheet: Sheet, maps: LayersMaps, picture: Picture) -> None:
    """The picture and, beside it or below it, the curves over depth with their legend."""
    curves = [(maps.entropy, "Entropy H by layer, nats")]
    if maps.distance is not None:
        curves.append((maps.distance, "Attention distance by layer, px"))
    limit = math.log(maps.tokens)
    aspect, panel = panel_aspect(picture), picture_panel(picture)
    height = min(max(sheet.width / 3.4 / aspect, _PLOT_LEAST), _PLOT_MOST)
    wide = min(height * aspect, sheet.width / 3)
    beside = sheet.width - max(wide, 1.0) > (_PLOT_WIDE + 2 * GAP) * len(curves)
    if not beside:
        height = _PLOT_LEAST
        wide = min(height * aspect, sheet.width)
    plots = height + TITLE_INCHES + 0.02
    below = 0.0 if beside else len(curves) * (plots + 0.06)
    page = sheet.room(plots + below + 0.2)
    title = ink.shortened(panel.titles[0], max(wide, 1.0), ink.TITLE_PT)
    page.text(MARGIN, page.y + TITLE_INCHES - 0.045, title, size=ink.TITLE_PT)
    panel_image(page, panel, Rect(MARGIN, page.y + TITLE_INCHES, wide, wide / aspect))
    left = MARGIN + max(wide, 1.0) + 2 * GAP if beside else MARGIN
    slot = sheet.width + MARGIN - left
    if beside:
        slot = (slot - (len(curves) - 1) * 2 * GAP) / len(curves)
    else:
        page.y += TITLE_INCHES + wide / aspect + 0.06
    for index, (values, heading) in enumerate(curves):
        place = left + index * (slot + 2 * GAP) if beside else MARGIN
        bound = (limit, f"uniform {limit:.2f}") if index == 0 else None
        rect = Rect(place, page.y, slot, plots)
        depth_lines(page, rect, values, maps.layers, maps.heads, heading, bound)
        if not beside:
            page.y += plots + 0.06
    if beside:
        page.y += plots + 0.06
    legend(sheet, maps.heads)
    sheet.skip(0.07)


def _layers_words(layers: tuple[int, ...], model: ModelInfo) -> str:
    """Which layers, and from where they are counted."""
    if layers == tuple(range(model.depth)):
        return f"all layers, 0{ink.TO}{model.depth - 1}"
    return f"layers {_ranges(layers)} of 0{ink.TO}{model.depth - 1}"


def _ranges(layers: tuple[int, ...]) -> str:
    """Layers as runs, such as 0 to 3, 7, and 9 to 11."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ", ".join(f"{run[0]}{ink.TO}{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
