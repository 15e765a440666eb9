"""Clean overlays: the image with a map over it, at the image's own size, without axes or text.

One function per kind of figure that lays a map over the image: from (maps, image, style, request)
to the pixels (height, width, 3) uint8 of every overlay, by the part of its file name. Colours are
those of the figure. matplotlib is not imported, unless for a colour map that does not come with
the package.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import DEFAULT_CMAP, Scale
from attnviz.figures.parts.held import hold
from attnviz.figures.parts.component_colours import OVERLAY_WEIGHT, component_colours
from attnviz.figures.parts.overlay import blend, blend_colours
from attnviz.figures.parts.scale import Limits, common_limits, own_limits

if TYPE_CHECKING:
    from attnviz.domain import (
        ByteArray,
        DrawStyle,
        FigureImage,
        FloatArray,
        HeadsMaps,
        MatrixMaps,
        PatchMaps,
        QkvMaps,
        RelevanceMaps,
        RolloutMaps,
    )
    from attnviz.domain.kinds import CommandRequest, PatchRequest

    Overlays = dict[str, ByteArray]

_SIGNED_CMAP = "RdBu_r"


def heads_overlays(
    maps: HeadsMaps, image: FigureImage, style: DrawStyle, _request: CommandRequest
) -> Overlays:
    """One overlay per head: ``head3``; with several latent queries ``latent1-head3``."""
    shared = common_limits(maps.attention, style)
    named = zip(maps.names, maps.attention, strict=True)
    return {name: _overlay(image, values, style, shared) for name, values in named}


def rollout_overlays(
    maps: RolloutMaps, image: FigureImage, style: DrawStyle, _request: CommandRequest
) -> Overlays:
    """The rollout, and the rollout up to each chosen layer: ``overlay``, ``layer3``."""
    named = {"overlay": maps.rollout}
    depths = zip(maps.depths, maps.at_depth, strict=True)
    named |= {f"layer{depth}": values for depth, values in depths if depth != maps.last_layer}
    shared = common_limits([maps.last, *named.values()], style)
    return {name: _overlay(image, values, style, shared) for name, values in named.items()}


def patch_overlays(
    maps: PatchMaps, image: FigureImage, style: DrawStyle, request: PatchRequest
) -> Overlays:
    """The mean map of every patch, or that of each head: ``query1``, ``query1-head2``.

    Patches are numbered as in the figure, in the order in which they were given.
    """
    means = maps.attention.mean(axis=1)
    shared = common_limits(maps.attention if request.each_head else means, style)
    overlays: Overlays = {}
    for number, (mean, each) in enumerate(zip(means, maps.attention, strict=True), 1):
        named = {f"query{number}": mean}
        if request.each_head:
            heads = zip(maps.heads, each, strict=True)
            named = {f"query{number}-head{head}": values for head, values in heads}
        overlays |= {part: _overlay(image, map_, style, shared) for part, map_ in named.items()}
    return overlays


def relevance_overlays(
    maps: RelevanceMaps, image: FigureImage, style: DrawStyle, _request: CommandRequest
) -> Overlays:
    """The relevance: ``overlay``."""
    style, limits = relevance_scale(maps, style)
    return {"overlay": _overlay(image, maps.relevance, style, limits, signed=maps.signed)}


def relevance_scale(maps: RelevanceMaps, style: DrawStyle) -> tuple[DrawStyle, Limits | None]:
    """The style and the limits of a relevance, None for its own.

    Contributions are signed: their limits are symmetric about 0, unless they are fixed, and their
    colour map has two arms, unless another one was chosen.
    """
    if not maps.signed:
        return style, common_limits([maps.relevance], style)
    if style.cmap == DEFAULT_CMAP:
        style = replace(style, cmap=_SIGNED_CMAP)
    if style.scale is Scale.FIXED:
        return style, common_limits([maps.relevance], style)
    most = float(np.abs(maps.relevance).max()) or 1.0
    return style, Limits(*hold(-most, most))


def matrix_overlays(
    maps: MatrixMaps, image: FigureImage, style: DrawStyle, _request: CommandRequest
) -> Overlays:
    """The entropy of the patches' rows, mean over heads, on its own scale: ``overlay``."""
    return {"overlay": _overlay(image, maps.patch_entropy, style, None)}


def qkv_overlays(
    maps: QkvMaps, image: FigureImage, style: DrawStyle, _request: CommandRequest
) -> Overlays:
    """The principal components of all heads' vectors together: ``pca-k``."""
    return {
        f"pca-{part.value}": blend_colours(
            image.pixels,
            component_colours(components),
            image.geometry,
            OVERLAY_WEIGHT * style.alpha,
            style.interpolation,
        )
        for part, components in zip(maps.parts, maps.joint_components, strict=True)
    }


def _overlay(
    image: FigureImage,
    values: FloatArray,
    style: DrawStyle,
    shared: Limits | None,
    *,
    signed: bool = False,
) -> ByteArray:
    return blend(
        image.pixels,
        values,
        image.geometry,
        shared or own_limits(values),
        style.cmap,
        style.alpha,
        style.interpolation,
        signed=signed,
    )
