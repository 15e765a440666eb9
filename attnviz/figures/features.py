"""The figure of the ``features`` command: components, norms and similarity of the tokens."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Interpolation, Scale, Size
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import layer_text, sheet_with_caption
from attnviz.figures.parts.colour_bars import shared_bar
from attnviz.figures.parts.histogram import split_histogram
from attnviz.figures.parts.masks import mask_outline
from attnviz.figures.parts.overlay import dimmed, enlarge, model_view
from attnviz.figures.parts.panels import (
    Edges,
    Panel,
    image_panel,
    map_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.scale import OWN_SCALE, Limits, common_limits
from attnviz.figures.patch import cell_mark, cell_tags

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import (
        BoolArray,
        ByteArray,
        DrawStyle,
        FeaturesMaps,
        FigureImage,
        FloatArray,
        ModelInfo,
    )
    from attnviz.figures.parts.page import Sheet

_NORMAL, _OUTLIER = "#0072b2", "#d55e00"
_LIGHT, _DARK = "#ffffff", "#000000"


def draw_features(
    maps: FeaturesMaps, image: FigureImage, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """The image, components as colours, norms, similarity to chosen patches, histogram of norms.

    Outliers are outlined in the norm map. A shared scale is that of the similarity maps.
    """
    shared = _similarity_limits(maps, style)
    sheet = sheet_with_caption(model, image, style, _caption(maps, model, shared))
    cells = [(int(row), int(column)) for row, column in maps.cells]
    marks = tuple(cell_mark(row, column, image.geometry.grid) for row, column in cells)
    panels = [
        image_panel(image, marks, cell_tags(cells, image.geometry.grid)),
        *_component_panels(maps, image, style),
        map_panel(("Norm of tokens", "Norm"), maps.norm, style, None, edges=_outlier_edges(maps)),
    ]
    for index, ((row, column), values) in enumerate(zip(cells, maps.similarity, strict=True), 1):
        titles = (f"Cosine to {index} · ({row}, {column})", f"Cosine to {index}", f"cos {index}")
        panels.append(map_panel(titles, values, style, shared, edges=(marks[index - 1],)))
    panel_rows(sheet, panels, panel_aspect(image))
    if shared:
        shared_bar(sheet, shared, "Cosine")
    _norms(sheet, maps)
    return sheet.figures()


def component_colours(components: FloatArray, shown: BoolArray | None = None) -> FloatArray:
    """Components (gh, gw, 3) as red, green and blue, 0..1, each from its minimum to its maximum.

    shown (gh, gw): the cells that define the limits; the others are 0. A constant component is 0.5.
    """
    mask = np.ones(components.shape[:2], np.bool_) if shown is None else shown
    values = components[mask]
    low, span = values.min(axis=0), np.ptp(values, axis=0)
    levels = np.full_like(values, 0.5)
    np.divide(values - low, span, out=levels, where=span > 0)
    colours = np.zeros_like(components)
    colours[mask] = levels
    return colours


def components_panel(
    titles: tuple[str, ...],
    components: FloatArray,
    style: DrawStyle,
    image: FigureImage,
    shown: BoolArray | None = None,
) -> Panel:
    """Components as colours; around a foreground, the image, dimmed."""
    colours = component_colours(components, shown)
    crisp = style.interpolation is Interpolation.NEAREST and shown is None
    return Panel(
        titles,
        partial(_colour_pixels, colours, style.interpolation, image, shown),
        Size(*components.shape[:2]) if crisp else None,
    )


def _colour_pixels(
    colours: FloatArray,
    how: Interpolation,
    image: FigureImage,
    shown: BoolArray | None,
    size: Size,
) -> ByteArray:
    # There is nothing to interpolate with at the border of a foreground.
    how = how if shown is None else Interpolation.NEAREST
    channels = [enlarge(np.ascontiguousarray(colours[..., k]), size, how) for k in range(3)]
    drawn = np.rint(255 * np.stack(channels, axis=-1)).astype(np.uint8)
    if shown is None:
        return drawn
    inside = enlarge(shown.astype(np.float32), size, how) > 0
    ground = dimmed(model_view(image, size), np.zeros_like(shown))
    return np.asarray(np.where(inside[..., None], drawn, ground), np.uint8)


def _component_panels(maps: FeaturesMaps, image: FigureImage, style: DrawStyle) -> list[Panel]:
    shares = ", ".join(theme.share(float(share)) for share in maps.explained)
    total = theme.share(float(maps.explained.sum()))
    titles = (f"PCA · {shares}", f"PCA · {total}", "PCA")
    if maps.foreground is None or maps.first is None:
        return [components_panel(titles, maps.components, style, image)]
    runs = tuple(run / _xy(maps.foreground.shape) for run in mask_outline(maps.foreground))
    first = map_panel(
        ("First component", "First comp.", "PC 1"),
        maps.first,
        style,
        None,
        edges=(Edges(runs, _LIGHT, _DARK),),
    )
    titles = (f"PCA of foreground · {total}", f"Foreground · {total}", "Foreground")
    return [first, components_panel(titles, maps.components, style, image, maps.foreground)]


def _outlier_edges(maps: FeaturesMaps) -> tuple[Edges, ...]:
    if maps.outliers is None or not maps.outliers.any():
        return ()
    runs = tuple(run / _xy(maps.outliers.shape) for run in mask_outline(maps.outliers))
    return (Edges(runs, _OUTLIER, _LIGHT),)


def _xy(grid: tuple[int, ...]) -> tuple[int, int]:
    return grid[1], grid[0]


def _similarity_limits(maps: FeaturesMaps, style: DrawStyle) -> Limits | None:
    """Limits of all similarity maps: from the lowest cosine to 1."""
    if style.scale is not Scale.SHARED or not maps.similarity.size:
        return common_limits(maps.similarity, style)
    return similarity_limits(float(maps.similarity.min()))


def similarity_limits(lowest: float) -> Limits:
    """From the lowest cosine to 1, that of a patch with itself."""
    return Limits(min(lowest, 0.999), 1.0)


def _caption(maps: FeaturesMaps, model: ModelInfo, shared: Limits | None) -> list[str]:
    given = "the model's output tokens, after its final norm"
    norms = "norms: of the last layer's tokens, before the final norm"
    if maps.layer is not None:
        given, norms = f"tokens of {layer_text(maps.layer, model)}", ""
    whose, foreground = "of the patch tokens", ""
    if maps.foreground is not None:
        whose = "of the foreground's tokens"
        foreground = f"foreground: {theme.share(float(maps.foreground.mean()))} of the patches"
    shares = ", ".join(theme.share(float(share)) for share in maps.explained)
    cells = ", ".join(
        f"{index} ({row}, {column})" for index, (row, column) in enumerate(maps.cells.tolist(), 1)
    )
    patches = "patches" if len(maps.cells) > 1 else "patch"
    return [
        given,
        f"PCA: components 1, 2, 3 {whose} as red, green, blue; shares of the variance {shares}",
        foreground,
        f"cosine: similarity to {patches} {cells} as (row, column)" if cells else "",
        "one colour scale of the cosines" if shared else OWN_SCALE,
        norms,
        _prefix_norms(maps, model),
    ]


def _prefix_norms(maps: FeaturesMaps, model: ModelInfo) -> str:
    """The norms of the tokens that are not patches."""
    norms = [theme.number(float(norm), 3) for norm in maps.prefix_norm]
    if not norms:
        return ""
    parts = []
    if model.has_cls:
        parts.append(f"CLS {norms[0]}")
    others = norms[int(model.has_cls) : len(norms) - model.registers]
    if others:
        parts.append(f"distillation {', '.join(others)}")
    if model.registers:
        parts.append(f"registers {', '.join(norms[-model.registers :])}")
    return f"norms not drawn: {'; '.join(parts)}"


def _norms(sheet: Sheet, maps: FeaturesMaps) -> None:
    outliers, threshold = maps.outliers, maps.outlier_threshold
    normal = np.ones(maps.norm.shape, np.bool_) if outliers is None else ~outliers
    heading = "Patches by norm"
    if threshold is not None:
        count, cells = int((~normal).sum()), normal.size
        of_all = f"{count} of {cells} ({theme.share(count / cells)})"
        heading += f": {of_all} above {theme.number(threshold, 3)} (dashed)"
    split_histogram(sheet, maps.norm, normal, (_NORMAL, _OUTLIER), heading, threshold)
