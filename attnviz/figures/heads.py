"""The figure of the ``heads`` command: attention per head of a layer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Query, Size
from attnviz.domain.mass_mask import mass_mask
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import (
    entropy_text,
    layer_text,
    prefix_text,
    query_text,
    sheet_with_caption,
    sinks_text,
)
from attnviz.figures.parts.colour_bars import shared_bar
from attnviz.figures.parts.masks import mask_outline
from attnviz.figures.parts.overlay import by_head, model_view, on_cells, strongest_share
from attnviz.figures.parts.panels import (
    Edges,
    Panel,
    dimmed_raster,
    image_panel,
    map_panel,
    overlay_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.plots import entropy_bars
from attnviz.figures.parts.scale import common_limits, scale_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import (
        ByteArray,
        DrawStyle,
        FigureImage,
        FloatArray,
        HeadsMaps,
        ModelInfo,
    )
    from attnviz.figures.parts.page import Sheet


def draw_heads(
    maps: HeadsMaps,
    image: FigureImage,
    model: ModelInfo,
    style: DrawStyle,
    *,
    threshold: float | None = None,
) -> tuple[Figure, ...]:
    """The image, every head in its own colour, mean, maximum, the map of each head, entropies.

    threshold: also draw the mass mask of each head on the image, see ``mass_mask``.
    """
    aspect = panel_aspect(image)
    shared = common_limits(maps.attention, style)
    masks_text = f"masks hold {theme.share(threshold)} of the mass on patches" if threshold else ""
    parts = [
        layer_text(maps.layer, model),
        _query_text(maps),
        scale_text(style),
        entropy_text(maps.tokens),
        prefix_text(maps.prefix, model),
        "" if maps.received is None else sinks_text(maps.received, image, model),
        masks_text,
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    head_panels = [
        map_panel(
            (f"Head {label} · H {entropy:.2f}", f"{label} · H {entropy:.2f}"),
            values,
            style,
            shared,
            swatch=theme.head_colour(head),
        )
        for label, head, values, entropy in zip(
            _labels(maps), maps.heads, maps.attention, maps.entropy.tolist(), strict=True
        )
    ]
    if len(head_panels) == 1:
        over = overlay_panel(("On picture",), image, maps.attention[0], style, shared)
        panel_rows(sheet, [image_panel(image), *head_panels, over], aspect)
    else:
        panel_rows(sheet, [image_panel(image), *_summary(maps, image, style)], aspect)
        panel_rows(sheet, head_panels, aspect, at_least=4)
    if shared:
        shared_bar(sheet, shared, "Attention")
    sheet.skip(0.03)
    _entropies(sheet, maps)
    if threshold is not None:
        sheet.skip(0.09)
        panel_rows(sheet, _mask_panels(maps, image, threshold), aspect, at_least=4)
    return sheet.figures()


def _query_text(maps: HeadsMaps) -> str:
    """Whose attention it is; of several latent queries, that they are not one."""
    if maps.query is not Query.POOL:
        return query_text(maps.query)
    if maps.latents is None:
        return "attention of the latent query"
    return f"attention of {len(set(maps.latents))} latent queries, as latent.head"


def _labels(maps: HeadsMaps) -> list[str]:
    """The number of each head, with several latent queries after that of its query: ``1.3``."""
    if maps.latents is None:
        return [str(head) for head in maps.heads]
    pairs = zip(maps.latents, maps.heads, strict=True)
    return [f"{latent}.{head}" for latent, head in pairs]


def _entropies(sheet: Sheet, maps: HeadsMaps) -> None:
    """The entropies as bars, of each latent query for itself."""
    if maps.latents is None:
        entropy_bars(sheet, maps.entropy, maps.heads, maps.tokens)
        return
    latents = np.array(maps.latents)
    for latent in sorted(set(maps.latents)):
        own = np.flatnonzero(latents == latent)
        heads = [maps.heads[index] for index in own]
        entropy_bars(sheet, maps.entropy[own], heads, maps.tokens, f", latent {latent}")


def _summary(maps: HeadsMaps, image: FigureImage, style: DrawStyle) -> list[Panel]:
    """The strongest head of each cell, and mean and maximum of all heads."""
    shared = common_limits(maps.attention, style)
    colours = np.array([theme.rgb_of(theme.head_colour(head)) for head in maps.heads], np.uint8)
    highest = strongest_share(maps.attention)
    strongest = partial(_by_head_pixels, image, maps.attention, colours, style.alpha, highest)
    return [
        Panel(("Strongest head", "Strongest"), strongest),
        map_panel(("Mean of heads", "Mean"), maps.attention.mean(axis=0), style, shared),
        map_panel(
            ("Maximum of heads", "Maximum", "Max"), maps.attention.max(axis=0), style, shared
        ),
    ]


def _by_head_pixels(
    image: FigureImage,
    attention: FloatArray,
    colours: ByteArray,
    alpha: float,
    highest: float,
    size: Size,
) -> ByteArray:
    view = model_view(image, size)
    return on_cells, strongest_share(view, image.geometry, lambda part: by_head(part, attention, colours, alpha, highest))


def _mask_panels(maps: HeadsMaps, image: FigureImage, threshold: float) -> list[Panel]:
    """The mass mask of each head: the image inside, dimmed outside, outlined in its colour."""
    panels = []
    for label, head, values in zip(_labels(maps), maps.heads, maps.attention, strict=True):
        mask = mass_mask(values, threshold)
        share = theme.share(float(mask.mean()))
        colour = theme.head_colour(head)
        runs = tuple(run / (mask.shape[1], mask.shape[0]) for run in mask_outline(mask))
        panels.append(
            Panel(
                (
                    f"Head {label} · {share} of cells",
                    f"Head {label} · {share}",
                    f"{label} · {share}",
                ),
                dimmed_raster(image, mask),
                swatch=colour,
                edges=(Edges(runs, colour, "#ffffff"),),
            )
        )
    return panels
