"""The figure of the ``heads`` command: what each head of a layer looks at."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Size
from attnviz.domain.mass_mask import mass_mask
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import (
    entropy_words,
    layer_words,
    prefix_words,
    query_words,
    sheet_with_caption,
)
from attnviz.figures.parts.masks import outline
from attnviz.figures.parts.overlay import by_head, dimmed, model_view
from attnviz.figures.parts.panels import (
    Edges,
    Panel,
    image_panel,
    map_panel,
    overlay_panel,
    panel_aspect,
    panel_rows,
    shared_bar,
)
from attnviz.figures.parts.plots import entropy_bars
from attnviz.figures.parts.scale import common_limits, scale_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import (
        BoolArray,
        ByteArray,
        DrawStyle,
        FigureImage,
        FloatArray,
        HeadsMaps,
        ModelInfo,
    )


def draw_heads(
    maps: HeadsMaps,
    image: FigureImage,
    model: ModelInfo,
    style: DrawStyle,
    *,
    threshold: float | None = None,
) -> tuple[Figure, ...]:
    """The picture, every head in its own colour, mean, maximum, each head's map, entropy bars.

    threshold: also draw each head's mass mask on the picture, see ``mass_mask``.
    """
    aspect = panel_aspect(image)
    shared = common_limits(maps.attention, style)
    masks_words = f"masks hold {theme.share(threshold)} of the mass on patches" if threshold else ""
    parts = [
        layer_words(maps.layer, model),
        query_words(maps.query),
        scale_words(style),
        entropy_words(maps.tokens),
        prefix_words(maps.prefix, model),
        masks_words,
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    each = [
        map_panel(
            (f"Head {head} · H {entropy:.2f}", f"{head} · H {entropy:.2f}"),
            values,
            style,
            shared,
            swatch=theme.head_colour(head),
        )
        for head, values, entropy in zip(
            maps.heads, maps.attention, maps.entropy.tolist(), strict=True
        )
    ]
    if len(each) == 1:
        over = overlay_panel(("On picture",), image, maps.attention[0], style, shared)
        panel_rows(sheet, [image_panel(image), *each, over], aspect)
    else:
        panel_rows(sheet, [image_panel(image), *_summary(maps, image, style)], aspect)
        panel_rows(sheet, each, aspect, at_least=4)
    if shared:
        shared_bar(sheet, shared, "Attention")
    sheet.skip(0.03)
    entropy_bars(sheet, maps.entropy, maps.heads, maps.tokens)
    if threshold is not None:
        sheet.skip(0.09)
        panel_rows(sheet, _mask_panels(maps, image, threshold), aspect, at_least=4)
    return sheet.figures()


def _summary(maps: HeadsMaps, image: FigureImage, style: DrawStyle) -> list[Panel]:
    """All heads in one picture, their mean and their maximum."""
    shared = common_limits(maps.attention, style)
    colours = np.array([theme.rgb_of(theme.head_colour(head)) for head in maps.heads], np.uint8)
    together = partial(_by_head_pixels, image, maps.attention, colours, style.alpha)
    return [
        Panel(("Strongest head", "Strongest"), together),
        map_panel(("Mean of heads", "Mean"), maps.attention.mean(axis=0), style, shared),
        map_panel(
            ("Maximum of heads", "Maximum", "Max"), maps.attention.max(axis=0), style, shared
        ),
    ]


def _by_head_pixels(
    image: FigureImage, attention: FloatArray, colours: ByteArray, alpha: float, size: Size
) -> ByteArray:
    return by_head(model_view(image, size), attention, colours, alpha)


def _mask_panels(maps: HeadsMaps, image: FigureImage, threshold: float) -> list[Panel]:
    """Each head's mass mask: the picture inside, greyed outside, edged in the head's colour."""
    panels = []
    for head, values in zip(maps.heads, maps.attention, strict=True):
        mask = mass_mask(values, threshold)
        shown = theme.share(float(mask.mean()))
        colour = theme.head_colour(head)
        runs = tuple(run / (mask.shape[1], mask.shape[0]) for run in outline(mask))
        panels.append(
            Panel(
                (f"Head {head} · {shown} of cells", f"Head {head} · {shown}", f"{head} · {shown}"),
                partial(_dimmed_pixels, image, mask),
                swatch=colour,
                edges=(Edges(runs, colour, "#ffffff"),),
            )
        )
    return panels


def _dimmed_pixels(image: FigureImage, kept: BoolArray, size: Size) -> ByteArray:
    return dimmed(model_view(image, size), kept)
