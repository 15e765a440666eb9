"""The figure of the ``features`` command: components, norms and similarity of the tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Scale
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import layer_text, sheet_with_caption
from attnviz.figures.parts.colour_bars import shared_bar
from attnviz.figures.parts.component_colours import PERCENTILES_TEXT
from attnviz.figures.parts.components import components_panel
from attnviz.figures.parts.histogram import split_histogram
from attnviz.figures.parts.masks import mask_outline
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
        DrawStyle,
        FeaturesMaps,
        FigureImage,
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
    colours = f"PCA: components 1, 2, 3 {whose} as red, green, blue, {PERCENTILES_TEXT}"
    return [
        given,
        f"{colours}; shares of the variance {shares}",
        foreground,
        f"cosine: similarity to {patches} {cells} as (row, column)" if cells else "",
        "one colour scale of the cosines" if shared else OWN_SCALE,
        norms,
        _prefix_norms(maps, model),
    ]


def _prefix_norms(maps: FeaturesMaps, model: ModelInfo) -> str:
    """The norms of the tokens that are not patches."""
    norms = (theme.number(float(norm), 3) for norm in maps.prefix_norm)
    named = [f"{name} {norm}" for name, norm in zip(model.prefix_names, norms, strict=True)]
    return f"norms not drawn: {', '.join(named)}" if named else ""


def _norms(sheet: Sheet, maps: FeaturesMaps) -> None:
    outliers, threshold = maps.outliers, maps.outlier_threshold
    normal = np.ones(maps.norm.shape, np.bool_) if outliers is None else ~outliers
    heading = "Patches by norm"
    if threshold is not None:
        count, cells = int((~normal).sum()), normal.size
        of_all = f"{count} of {cells} ({theme.share(count / cells)})"
        heading += f": {of_all} above {theme.number(threshold, 3)} (dashed)"
    split_histogram(sheet, maps.norm, normal, (_NORMAL, _OUTLIER), heading, threshold)
