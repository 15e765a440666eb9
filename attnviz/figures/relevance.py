"""The figure of the ``relevance`` command: what matters for a class or for a similarity."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import DEFAULT_CMAP, RelevanceMethod, Scale, Size
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import prefix_text, sheet_with_caption
from attnviz.figures.parts.colour_bars import shared_bar
from attnviz.figures.parts.overlay import enlarge, model_view, overlay
from attnviz.figures.parts.panels import (
    Panel,
    image_panel,
    map_panel,
    overlay_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.scale import Limits, common_limits, scale_text

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

_WHITE = 255
_SIGNED_CMAP = "RdBu_r"
_METHODS = {
    RelevanceMethod.CHEFER: "attention \u00d7 gradient (Chefer 2021)",
    RelevanceMethod.GRADIENT_ROLLOUT: "gradient rollout",
    RelevanceMethod.CONTRIBUTION: "contribution to CLS (Gandelsman 2024)",
}


def draw_relevance(
    maps: RelevanceMaps, image: FigureImage, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """The image, the second image if there is one, the relevance, alone and on the image.

    Contributions are signed: their colour scale is symmetric about 0, and the overlay is clear
    where they are small.
    """
    if maps.signed and style.cmap == DEFAULT_CMAP:
        style = replace(style, cmap=_SIGNED_CMAP)
    limits, scale = _scale(maps, style)
    joined = "sum" if maps.signed else "mean"
    parts = [
        *_target_text(maps),
        _METHODS[maps.method],
        f"{joined} of {len(maps.heads)} heads" if len(maps.heads) > 1 else f"head {maps.heads[0]}",
        scale,
        _rest_text(maps, model),
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
        raster = partial(_signed_overlay, image, maps.relevance, limits or Limits(0, 1), style)
        panels.append(Panel((over, "On picture"), raster))
    else:
        panels.append(overlay_panel((over, "On picture"), image, maps.relevance, style, limits))
    panel_rows(sheet, panels, aspect)
    if limits:
        shared_bar(sheet, limits, title)
    return sheet.figures()


_TITLES = ("Relevance", "Relevance on picture")


def _scale(maps: RelevanceMaps, style: DrawStyle) -> tuple[Limits | None, str]:
    """The limits of the shared colour bar, if there is one, and the scale as the foot states it."""
    if maps.signed and style.scale is not Scale.FIXED:
        most = float(np.abs(maps.relevance).max()) or 1.0
        return Limits(-most, most), "one colour scale, the same below and above 0"
    return common_limits([maps.relevance], style), scale_text(style)


def _target_text(maps: RelevanceMaps) -> list[str]:
    """The target and its value."""
    if maps.like is not None:
        return [f"cosine {theme.number(maps.value)} with {maps.like.name}"]
    text = f"class {maps.class_index}: logit {theme.number(maps.value)}"
    if maps.probability is not None:
        text += f", probability {theme.share(maps.probability)}"
    return [text]


def _rest_text(maps: RelevanceMaps, model: ModelInfo) -> str:
    """The share of tokens that are not drawn; for contributions, the sums of all tokens."""
    drawn, rest = float(maps.relevance.sum()), float(maps.prefix.sum())
    if maps.signed:
        others = "CLS and registers" if model.registers else "CLS"
        return f"together: patches {theme.number(drawn)}, {others} {theme.number(rest)}"
    if drawn + rest > 0:
        return prefix_text(maps.prefix / (drawn + rest), model)
    return "all 0" if maps.like is None else "all 0: identical to the model, so without a gradient"


def _whole(second: FigureImage, aspect: float, size: Size) -> ByteArray:
    """The second image as the model saw it, whole, in the corner of a panel of another shape."""
    own = panel_aspect(second)
    across, down = min(1.0, own / aspect), min(1.0, aspect / own)
    inner = Size(max(1, round(size.height * down)), max(1, round(size.width * across)))
    out = np.full((*size, 3), _WHITE, np.uint8)
    out[: inner.height, : inner.width] = model_view(second, inner)
    return out


def _signed_overlay(
    image: FigureImage, values: FloatArray, limits: Limits, style: DrawStyle, size: Size
) -> ByteArray:
    """Signed values over the image, with more weight the further from 0."""
    sampled = enlarge(values, size, style.interpolation)
    return overlay(model_view(image, size), sampled, limits, style.cmap, style.alpha, signed=True)
