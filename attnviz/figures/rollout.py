"""The figure of the ``rollout`` command: attention rolled out through the layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain import Query
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import prefix_text, query_text, sheet_with_caption
from attnviz.figures.parts.colour_bars import shared_bar
from attnviz.figures.parts.panels import (
    image_panel,
    map_panel,
    overlay_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.scale import common_limits, scale_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import DrawStyle, FigureImage, ModelInfo, RolloutMaps, RolloutOptions


def draw_rollout(
    maps: RolloutMaps,
    image: FigureImage,
    model: ModelInfo,
    style: DrawStyle,
) -> tuple[Figure, ...]:
    """The image, the mean of the last layer, the rollout, alone and on the image.

    Below them, the rollout up to each of ``maps.depths``, if there are others than the last layer.
    """
    depths = [depth for depth in maps.depths if depth != maps.last_layer]
    drawn = [maps.last, maps.rollout, *(maps.at_depth if depths else ())]
    shared = common_limits(drawn, style)
    start = maps.options.start_layer
    whole = (start, maps.last_layer) == (0, model.depth - 1)
    of_all = "" if whole else f" of {theme.range_text(0, model.depth - 1)}"
    parts = [
        f"rollout of layers {theme.range_text(start, maps.last_layer)}{of_all}",
        *rollout_text(maps.options),
        query_text(maps.query),
        scale_text(style),
        prefix_text(maps.prefix, model),
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    aspect = panel_aspect(image)
    last = (f"Mean of layer {maps.last_layer}", f"Layer {maps.last_layer}")
    if maps.query is Query.POOL:
        last = ("Attention pooling", "Pooling")
    panels = [
        image_panel(image),
        map_panel(last, maps.last, style, shared),
        map_panel(("Rollout",), maps.rollout, style, shared),
        overlay_panel(("Rollout on picture", "On picture"), image, maps.rollout, style, shared),
    ]
    panel_rows(sheet, panels, aspect)
    if depths:
        steps = [
            map_panel((f"Layers {layers}", layers), values, style, shared)
            for layers, values in (
                (theme.range_text(start, depth), values)
                for depth, values in zip(maps.depths, maps.at_depth, strict=True)
            )
        ]
        panel_rows(sheet, steps, aspect, at_least=4)
    if shared:
        shared_bar(sheet, shared, "Attention")
    return sheet.figures()


def rollout_text(options: RolloutOptions) -> list[str]:
    """The options of the rollout, as short phrases."""
    parts = [f"{options.fusion.value} of heads", f"residual {options.residual:g}"]
    if options.discard_ratio:
        order = options.discard.value
        parts.append(f"lowest {100 * options.discard_ratio:g} % discarded {order} the residual")
    else:
        parts.append("nothing discarded")
    return parts
