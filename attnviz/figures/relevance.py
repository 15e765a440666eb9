"""The figure of the ``relevance`` command: what counts for a class, or for a likeness."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import DEFAULT_CMAP, RelevanceMethod, Scale, Size
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import prefix_words, sheet_with_caption
from attnviz.figures.parts.overlay import colour, enlarge, mix, model_view, overlay_weight
from attnviz.figures.parts.panels import (
    Panel,
    image_panel,
    map_panel,
    overlay_panel,
    panel_aspect,
    panel_rows,
    shared_bar,
)
from attnviz.figures.parts.scale import Limits, common_limits, scale_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import (
        ByteArray,
        DrawStyle,
        FigureImage,
        FloatArray,
        ModelInfo,
        RelevanceMaps,
    )

_PAPER = 255
_SIGNED_CMAP = "RdBu_r"
_METHODS = {
    RelevanceMethod.CHEFER: "attention \u00d7 gradient (Chefer 2021)",
    RelevanceMethod.GRADIENT_ROLLOUT: "gradient rollout",
    RelevanceMethod.CONTRIBUTION: "contribution to CLS (Gandelsman 2024)",
}


def draw_relevance(
    maps: RelevanceMaps, image: FigureImage, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """The picture, the second picture if there is one, the relevance, and it over the picture.

    Contributions have a sign: their colours run as far below 0 as above, and the overlay is clear
    where they are small.
    """
    if maps.signed and style.cmap == DEFAULT_CMAP:
        style = replace(style, cmap=_SIGNED_CMAP)
    limits, scale = _scale(maps, style)
    joined = "sum" if maps.signed else "mean"
    parts = [
        *_target_words(maps),
        _METHODS[maps.method],
        f"{joined} of {len(maps.heads)} heads" if len(maps.heads) > 1 else f"head {maps.heads[0]}",
        scale,
        _rest_words(maps, model),
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    aspect = panel_aspect(image)
    panels = [image_panel(image)]
    if maps.like is not None:
        name = theme.printable(maps.like.name)
        panels.append(Panel((f"Like {name}", name), partial(_whole, maps.like, aspect)))
    title, over = ("Contribution", "Contribution on picture") if maps.signed else _TITLES
    panels.append(map_panel((title,), maps.relevance, style, limits))
    if maps.signed:
        raster = partial(_laid_over, image, maps.relevance, limits or Limits(0, 1), style)
        panels.append(Panel((over, "On picture"), raster))
    else:
        panels.append(overlay_panel((over, "On picture"), image, maps.relevance, style, limits))
    panel_rows(sheet, panels, aspect)
    if limits:
        shared_bar(sheet, limits, title)
    return sheet.figures()


_TITLES = ("Relevance", "Relevance on picture")


def _scale(maps: RelevanceMaps, style: DrawStyle) -> tuple[Limits | None, str]:
    """The limits of the shared colour bar, None without one, and how the scale is stated."""
    if maps.signed and style.scale is not Scale.FIXED:
        most = float(np.abs(maps.relevance).max()) or 1.0
        return Limits(-most, most), "one colour scale, the same below and above 0"
    return common_limits([maps.relevance], style), scale_words(style)


def _target_words(maps: RelevanceMaps) -> list[str]:
    """The target and its value."""
    if maps.like is not None:
        return [f"cosine {theme.number(maps.value)} with {maps.like.name}"]
    words = f"class {maps.class_index}: logit {theme.number(maps.value)}"
    if maps.probability is not None:
        words += f", probability {theme.share(maps.probability)}"
    return [words]


def _rest_words(maps: RelevanceMaps, model: ModelInfo) -> str:
    """What is on tokens that are not drawn; of contributions, what all tokens add up to."""
    drawn, rest = float(maps.relevance.sum()), float(maps.prefix.sum())
    if maps.signed:
        others = "CLS and registers" if model.registers else "CLS"
        return f"together: patches {theme.number(drawn)}, {others} {theme.number(rest)}"
    if drawn + rest > 0:
        return prefix_words(maps.prefix / (drawn + rest), model)
    return "all 0" if maps.like is None else "all 0: alike to the model, so without a gradient"


def _whole(second: FigureImage, aspect: float, size: Size) -> ByteArray:
    """The second picture as the model saw it, whole, in the corner of a panel of another shape."""
    own = panel_aspect(second)
    wide = min(1.0, own / aspect)
    high = min(1.0, aspect / own)
    inner = Size(max(1, round(size.height * high)), max(1, round(size.width * wide)))
    out = np.full((*size, 3), _PAPER, np.uint8)
    out[: inner.height, : inner.width] = model_view(second, inner)
    return out


def _laid_over(
    image: FigureImage, values: FloatArray, limits: Limits, style: DrawStyle, size: Size
) -> ByteArray:
    """Signed values over the picture, the stronger the further from 0."""
    drawn = enlarge(values, size, style.interpolation)
    most = max(abs(limits.low), abs(limits.high))
    weight = overlay_weight(np.abs(drawn), Limits(0.0, most), style.alpha)
    return mix(model_view(image, size), colour(drawn, limits, style.cmap), weight)
