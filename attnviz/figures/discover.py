"""The figure of the ``discover`` command: what the object is found by, its mask and its box."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import DEFAULT_CMAP, DiscoverMethod, Part, Scale
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import layer_text, sheet_with_caption
from attnviz.figures.parts.colour_bars import SIGNED_CMAP, shared_bar
from attnviz.figures.parts.masks import mask_outline
from attnviz.figures.parts.panels import (
    Edges,
    Panel,
    dimmed_raster,
    image_panel,
    map_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.scale import Limits, common_limits, scale_text
from attnviz.figures.patch import cell_mark

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import (
        BoolArray,
        DiscoverMaps,
        DrawStyle,
        FigureImage,
        FloatArray,
        ModelInfo,
    )

_BOX, _LIGHT, _DARK = "#e69f00", "#ffffff", "#000000"
_BOX_WIDTH = 1.3
_VECTORS = {Part.QUERY: "queries", Part.KEY: "keys", Part.VALUE: "values"}
_METHODS = {
    DiscoverMethod.LOST: "LOST (Sim\u00e9oni 2021)",
    DiscoverMethod.TOKENCUT: "TokenCut (Wang 2022)",
    DiscoverMethod.SPECTRAL: "spectral (Melas-Kyriazi 2022)",
}


def draw_discover(
    maps: DiscoverMaps, image: FigureImage, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """The image with seed and box, the maps that they come from, and the object alone.

    Eigenvectors and the similarity of LOST are signed: their colours are centred on 0. The seed is
    marked and the mask outlined in the map that the mask is cut from.
    """
    signed = _signed_maps(maps)
    shared = _shared_limits(signed, style)
    colours = replace(style, cmap=SIGNED_CMAP) if style.cmap == DEFAULT_CMAP else style
    sheet = sheet_with_caption(model, image, style, _caption(maps, model, style))
    seed, box = cell_mark(*maps.seed, image.geometry.grid), _box_edges(maps.mask)
    panels = [image_panel(image, (box, seed))]
    if maps.degree is not None:
        degree = maps.degree.astype(np.float32)
        panels.append(map_panel(("Degree",), degree, style, None, edges=(seed,)))
    for index, values in enumerate(signed, 1):
        limits = shared or _symmetric([values])
        edges = (mask_edges(maps.mask), seed) if index == 1 else ()
        panel = map_panel(_titles(maps, index), values, colours, limits, edges=edges)
        panels.append(replace(panel, limits=None if shared else limits, cmap=colours.cmap))
    share = theme.share(maps.share)
    object_ = dimmed_raster(image, maps.mask)
    panels.append(Panel((f"Object \u00b7 {share} of patches", "Object"), object_, edges=(box,)))
    panel_rows(sheet, panels, panel_aspect(image))
    if shared:
        name = "Similarity" if maps.eigenvectors is None else "Eigenvector"
        shared_bar(sheet, shared, name, colours.cmap)
    return sheet.figures()


def _signed_maps(maps: DiscoverMaps) -> list[FloatArray]:
    return [maps.object_map] if maps.eigenvectors is None else list(maps.eigenvectors)


def _titles(maps: DiscoverMaps, index: int) -> tuple[str, ...]:
    """Of the similarity, or of the eigenvector of that number; the constant one is number 0."""
    if maps.eigenvalues is None:
        return ("Similarity to seeds", "Similarity")
    value = theme.number(float(maps.eigenvalues[index - 1]), 2)
    return (f"Eigenvector {index} \u00b7 \u03bb {value}", f"Eigenvector {index}", f"v{index}")


def _symmetric(maps: list[FloatArray]) -> Limits:
    most = max(float(np.abs(values).max()) for values in maps) or 1.0
    return Limits(-most, most)


def _shared_limits(signed: list[FloatArray], style: DrawStyle) -> Limits | None:
    """The limits of all signed maps; None where each has its own. A degree has its own always."""
    if style.scale is Scale.SHARED:
        return _symmetric(signed)
    return common_limits(signed, style)


def _box_edges(mask: BoolArray) -> Edges:
    """The box around a mask, in panel coordinates."""
    height, width = mask.shape
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    top, bottom = rows[0] / height, (rows[-1] + 1) / height
    left, right = columns[0] / width, (columns[-1] + 1) / width
    corners = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
    return Edges((np.array(corners),), _BOX, _DARK, _BOX_WIDTH)


def mask_edges(mask: BoolArray) -> Edges:
    """The outline of a mask (gh, gw), visible on any background."""
    runs = tuple(run / (mask.shape[1], mask.shape[0]) for run in mask_outline(mask))
    return Edges(runs, _LIGHT, _DARK)


def _caption(maps: DiscoverMaps, model: ModelInfo, style: DrawStyle) -> list[str]:
    left, top, right, bottom = (theme.number(value, 4) for value in maps.box.ltrb)
    return [
        f"{_VECTORS[maps.part]} of {layer_text(maps.layer, model)}, heads joined",
        _METHODS[maps.method],
        f"seed: patch ({maps.seed[0]}, {maps.seed[1]}) as (row, column)",
        f"box: x {left} to {right}, y {top} to {bottom} in pixels of the image",
        _scale_text(maps, style),
    ]


def _scale_text(maps: DiscoverMaps, style: DrawStyle) -> str:
    if style.scale is Scale.FIXED:
        return scale_text(style)
    if maps.degree is not None:
        return "colours: degree from lowest to highest, similarity symmetric about 0"
    one = "one colour scale" if style.scale is Scale.SHARED else "colours: each eigenvector"
    return f"{one}, symmetric about 0"
