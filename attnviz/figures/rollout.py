"""The figure of the ``rollout`` command: attention carried through all layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import prefix_words, query_words, sheet_with_caption
from attnviz.figures.parts.panels import (
    image_panel,
    map_panel,
    overlay_panel,
    panel_aspect,
    panel_rows,
    shared_bar,
)
from attnviz.figures.parts.scale import common_limits, scale_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import DrawStyle, FigureImage, ModelInfo, RolloutMaps, RolloutOptions


def draw_rollout(
    maps: RolloutMaps,
    image: FigureImage,
    model: ModelInfo,
    style: DrawStyle,
) -> tuple[Figure, ...]:
    """The picture, the last layer's mean, the rollout, and the rollout over the picture.

    Below them the rollout after each of ``maps.depths``, when there is more than the last.
    """
    staged = [depth for depth in maps.depths if depth != maps.last_layer]
    drawn = [maps.last, maps.rollout, *(maps.at_depth if staged else ())]
    shared = common_limits(drawn, style)
    start = maps.options.start_layer
    whole = (start, maps.last_layer) == (0, model.depth - 1)
    of_all = "" if whole else f" of 0{theme.TO}{model.depth - 1}"
    parts = [
        f"rollout of layers {start}{theme.TO}{maps.last_layer}{of_all}",
        *rollout_words(maps.options),
        query_words(maps.query),
        scale_words(style),
        prefix_words(maps.prefix, model),
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    aspect = panel_aspect(image)
    last = (f"Mean of layer {maps.last_layer}", f"Layer {maps.last_layer}")
    panels = [
        image_panel(image),
        map_panel(last, maps.last, style, shared),
        map_panel(("Rollout",), maps.rollout, style, shared),
        overlay_panel(("Rollout on picture", "On picture"), image, maps.rollout, style, shared),
    ]
    panel_rows(sheet, panels, aspect)
    if staged:
        steps = [
            map_panel(
                (f"Layers {start}{theme.TO}{depth}", f"{start}{theme.TO}{depth}"),
                values,
                style,
                shared,
            )
            for depth, values in zip(maps.depths, maps.at_depth, strict=True)
        ]
        panel_rows(sheet, steps, aspect, at_least=4)
    if shared:
        shared_bar(sheet, shared, "Attention")
    return sheet.figures()


def rollout_words(options: RolloutOptions) -> list[str]:
    """The choices within the definition of rollout, as short phrases."""
    words = [f"{options.fusion.value} of heads", f"residual {options.residual:g}"]
    if options.discard_ratio:
        order = options.discard.value
        words.append(f"lowest {100 * options.discard_ratio:g} % discarded {order} the residual")
    else:
        words.append("nothing discarded")
    return words
