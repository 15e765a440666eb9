"""The figure of the ``compare`` command: pictures and models down, maps across."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain import MapKind, Scale
from attnviz.figures.features import components_panel, likeness_limits
from attnviz.figures.parts import style as ink
from attnviz.figures.parts.caption import RANDOM, layer_words, sheet_of
from attnviz.figures.parts.grid import Column, Row, draw_grid
from attnviz.figures.parts.panels import map_panel, panel_aspect, picture_panel
from attnviz.figures.parts.scale import Limits, common_limits, scale_words
from attnviz.figures.patch import cell_mark
from attnviz.figures.qkv import vectors_panel
from attnviz.figures.rollout import rollout_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import ComparedMap, ComparedRow, DrawStyle
    from attnviz.figures.parts.panels import Edges, Panel

_TITLES = {
    MapKind.MEAN: ("Mean of heads", "Mean"),
    MapKind.HEAD: ("Head {}", "H {}"),
    MapKind.HEADS: ("Head {}", "H {}"),
    MapKind.PATCH: ("Patch {}", "P {}"),
    MapKind.ROLLOUT: ("Rollout",),
    MapKind.SCORE: ("Token score", "Score"),
    MapKind.PCA: ("PCA of tokens", "PCA"),
    MapKind.FOREGROUND: ("PCA of foreground", "Foreground"),
    MapKind.NORM: ("Norm of tokens", "Norm"),
    MapKind.COSINE: ("Cosine to {}", "cos {}"),
    MapKind.ENTROPY: ("Entropy of patches", "Entropy"),
    MapKind.TO_CLS: ("Patches to CLS", "To CLS"),
    MapKind.QUERY_PCA: ("PCA of queries", "PCA of Q"),
    MapKind.KEY_PCA: ("PCA of keys", "PCA of K"),
    MapKind.VALUE_PCA: ("PCA of values", "PCA of V"),
    MapKind.QUERY_NORM: ("Norm of queries", "Norm of Q"),
    MapKind.KEY_NORM: ("Norm of keys", "Norm of K"),
    MapKind.VALUE_NORM: ("Norm of values", "Norm of V"),
}
_TOKENS = (MapKind.PCA, MapKind.FOREGROUND, MapKind.NORM, MapKind.COSINE)
_FAR_FROM_ZERO = (
    MapKind.ENTROPY,
    MapKind.NORM,
    MapKind.QUERY_NORM,
    MapKind.KEY_NORM,
    MapKind.VALUE_NORM,
)
"""Kinds whose values lie close together: on a scale from 0 all maps would look alike."""
_VECTORS = (MapKind.QUERY_PCA, MapKind.KEY_PCA, MapKind.VALUE_PCA)


def draw_comparison(rows: Sequence[ComparedRow], style: DrawStyle) -> tuple[Figure, ...]:
    """A row for every picture and model: the picture, and the maps under the names of their kinds.

    With the shared scale, maps of one kind have one scale in all rows and columns: all heads, all
    patches, all cosines. The patch that a map is of is marked on it and on the picture.
    """
    names = list(rows[0].maps)
    alone = len({row.picture.name for row in rows}) == 1 and not _says_pictures(rows)
    columns = [Column((ink.printable(rows[0].picture.name) if alone else "Picture",))]
    panels: list[list[Panel | None]] = [[picture_panel(row.picture, _marks(row))] for row in rows]
    groups: dict[str, list[ComparedMap]] = {}
    for shown in (shown for row in rows for shown in row.maps.values()):
        groups.setdefault(_group(shown.kind), []).append(shown)
    scales = {group: _limits(found, style) for group, found in groups.items()}
    for name in names:
        found = [row.maps[name] for row in rows]
        group = _group(found[0].kind)
        limits = scales[group]
        most = 1 if found[0].is_colours else max(len(shown.values) for shown in found)
        for index in range(most):
            columns.append(Column(_titles(name, found, index), limits, group))
            for row, shown, line in zip(rows, found, panels, strict=True):
                line.append(_panel(row, shown, index, limits, style))
    sheet = sheet_of(style, _words(rows, style), _warning(rows))
    lines = [
        Row(row.title, panel_aspect(row.picture), tuple(line))
        for row, line in zip(rows, panels, strict=True)
    ]
    draw_grid(sheet, columns, lines)
    return sheet.figures()


def _says_pictures(rows: Sequence[ComparedRow]) -> bool:
    """Whether the titles of the rows name the pictures."""
    return all(row.picture.name in row.title for row in rows)


def _group(kind: MapKind) -> str:
    """What shares a scale: a kind of map, and single heads with all of them."""
    return str(MapKind.HEADS if kind is MapKind.HEAD else kind)


def _titles(name: str, found: Sequence[ComparedMap], index: int) -> tuple[str, ...]:
    """With the head, or the patch: by its cell where that is one in all rows, or as asked."""
    kind = found[0].kind
    what = str(index) if kind is MapKind.HEADS else name.removeprefix(str(kind))[1:]
    cells = {shown.cell for shown in found}
    if None not in cells and not what.endswith("px"):
        what = str(*cells) if len(cells) == 1 else f"({what.replace(',', ', ')})"
    return tuple(title.format(what) for title in _TITLES[kind])


def _marks(row: ComparedRow) -> tuple[Edges, ...]:
    """The boxes of the patches that maps of this row are of."""
    cells = dict.fromkeys(shown.cell for shown in row.maps.values() if shown.cell is not None)
    return tuple(cell_mark(*cell, row.picture.geometry.grid) for cell in cells)


def _limits(found: Sequence[ComparedMap], style: DrawStyle) -> Limits | None:
    """The limits that maps of one group share; None where each map has its own."""
    if found[0].is_colours:
        return None
    values = [each.values for each in found]
    lowest = min(float(each.min()) for each in values)
    if found[0].kind is MapKind.COSINE and style.scale is Scale.SHARED:
        return likeness_limits(lowest)
    limits = common_limits(values, style)
    if found[0].kind in _FAR_FROM_ZERO and limits and style.scale is Scale.SHARED:
        return Limits(min(lowest, 0.99 * limits.high), limits.high)
    return limits


def _panel(
    row: ComparedRow, shown: ComparedMap, index: int, limits: Limits | None, style: DrawStyle
) -> Panel | None:
    if shown.kind in _VECTORS:
        return vectors_panel(("",), shown.values)
    if shown.is_colours:
        return components_panel(("",), shown.values, style, row.picture, shown.foreground)
    if index >= len(shown.values):
        return None
    grid = row.picture.geometry.grid
    edges = () if shown.cell is None else (cell_mark(*shown.cell, grid),)
    return map_panel(("",), shown.values[index], style, limits, edges=edges)


def _words(rows: Sequence[ComparedRow], style: DrawStyle) -> list[str]:
    """What was run: each model once, with each input size once, its layer; and the scale."""
    sizes: dict[tuple[str, int, str], dict[str, None]] = {}
    for row in rows:
        geometry = row.picture.geometry
        size, grid = geometry.model_input, geometry.grid
        words = (
            f"{size.height}{ink.TIMES}{size.width} ({grid.height}{ink.TIMES}{grid.width} patches)"
        )
        key = (row.label, row.model.patch, _layer_words(row))
        sizes.setdefault(key, {})[words] = None
    said = [
        f"{label}: patches of {patch} px, input {', '.join(words)}{layer}"
        for (label, patch, layer), words in sizes.items()
    ]
    maps = rows[0].maps.values()
    of_output = [shown.kind for shown in maps if shown.kind in _TOKENS and shown.layer is None]
    if of_output:
        before = "; norms before it" if MapKind.NORM in of_output else ""
        said.append(f"tokens: the model's output, after its final norm{before}")
    for shown in maps:
        if shown.rollout is not None:
            first = shown.rollout.start_layer
            of = f"rollout of layers {first}{ink.TO}{rows[0].model.depth - 1}"
            same = len({row.model.depth for row in rows}) == 1
            said.append(", ".join([of if same else "rollout", *rollout_words(shown.rollout)]))
    assumed = dict.fromkeys(row.label for row in rows if row.model.statistics_assumed)
    if assumed:
        said.append(f"mean and std assumed: {', '.join(assumed)}")
    kinds = [shown.kind for shown in maps]
    scale = scale_words(style)
    if style.scale is Scale.SHARED:
        scale = "one colour scale a kind of map"
    said.append(scale)
    if any(shown.is_colours for shown in maps):
        tokens = ["tokens"] * (MapKind.PCA in kinds or MapKind.FOREGROUND in kinds)
        vectors = ["vectors"] * any(kind in _VECTORS for kind in kinds)
        whose = " and ".join(tokens + vectors)
        said.append(f"PCA: components of each row's own {whose} as red, green, blue")
    return list(dict.fromkeys(said))


def _layer_words(row: ComparedRow) -> str:
    """The layer that maps of one layer are of."""
    layers = {shown.layer for shown in row.maps.values() if shown.layer is not None}
    return "".join(f", {layer_words(layer, row.model)}" for layer in sorted(layers))


def _warning(rows: Sequence[ComparedRow]) -> str:
    untrained = dict.fromkeys(row.label for row in rows if row.model.random_weights)
    if not untrained:
        return ""
    if len(untrained) == 1 and all(row.model.random_weights for row in rows):
        return RANDOM
    return f"RANDOM WEIGHTS, not trained: {', '.join(untrained)}"
