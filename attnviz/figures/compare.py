"""The figure of the ``compare`` command: a row per image and model, a column per map."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attnviz.domain import MapKind, Scale
from attnviz.figures.discover import mask_edges
from attnviz.figures.features import similarity_limits
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import RANDOM, layer_text, sheet_of
from attnviz.figures.parts.component_colours import PERCENTILES_TEXT
from attnviz.figures.parts.components import components_panel
from attnviz.figures.parts.grid import Column, Row, draw_grid
from attnviz.figures.parts.panels import empty_panel, image_panel, map_panel, panel_aspect
from attnviz.figures.parts.scale import Limits, common_limits, scale_text
from attnviz.figures.patch import cell_mark
from attnviz.figures.rollout import rollout_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import ComparedMap, ComparedRow, DrawStyle
    from attnviz.figures.parts.panels import Edges, Panel

_TITLES = {
    MapKind.MEAN: ("Mean of heads", "Mean"),
    MapKind.MAX: ("Maximum of heads", "Max"),
    MapKind.HEAD: ("Head {}", "H {}"),
    MapKind.HEADS: ("Head {}", "H {}"),
    MapKind.PATCH: ("Patch {}", "P {}"),
    MapKind.ROLLOUT: ("Rollout",),
    MapKind.SCORE: ("Token score", "Score"),
    MapKind.RELEVANCE: ("Relevance",),
    MapKind.DISCOVER: ("Object, TokenCut", "TokenCut"),
    MapKind.LOST: ("Object, LOST", "LOST"),
    MapKind.SPECTRAL: ("Object, spectral", "Spectral"),
    MapKind.MATCH: ("Cosine to nearest", "Nearest"),
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
"""Kinds whose values are close to each other: on a scale from 0 all maps would look alike."""
_OBJECTS = (MapKind.DISCOVER, MapKind.LOST, MapKind.SPECTRAL)
_SIGNED = (MapKind.RELEVANCE, *_OBJECTS)
_VECTORS = (MapKind.QUERY_PCA, MapKind.KEY_PCA, MapKind.VALUE_PCA)


def draw_comparison(rows: Sequence[ComparedRow], style: DrawStyle) -> tuple[Figure, ...]:
    """A row per image and model: the image, and its maps under the names of their kinds.

    On the shared scale, all maps of one kind have the same limits: all heads, all patches, all
    cosines. The patch that a map belongs to is marked on the map and on the image. A map that an
    image does not have is a panel that says why.
    """
    sheet = sheet_of(style, _caption(rows, style), _warning(rows))
    columns, panels = _columns(rows, style)
    grid_rows = [
        Row(row.title, panel_aspect(row.image), tuple(line))
        for row, line in zip(rows, panels, strict=True)
    ]
    draw_grid(sheet, columns, grid_rows)
    return sheet.figures()


def _columns(
    rows: Sequence[ComparedRow], style: DrawStyle
) -> tuple[list[Column], list[list[Panel | None]]]:
    """The columns, and the panels of every row: the image, then one per map and head."""
    one_image = len({row.image.name for row in rows}) == 1 and not _titles_name_images(rows)
    columns = [Column((theme.printable(rows[0].image.name) if one_image else "Picture",))]
    panels: list[list[Panel | None]] = [
        [_placed(image_panel(row.image, _marks(row)), row)] for row in rows
    ]
    scales = _scales(rows, style)
    for name in rows[0].maps:
        maps = [row.maps[name] for row in rows]
        group = _group(maps[0].kind, name)
        limits = scales.get(group)
        count = 1 if maps[0].is_colours else max(1, *(len(compared.values) for compared in maps))
        for index in range(count):
            columns.append(Column(map_titles(name, maps, index), limits, group))
            for row, compared, line in zip(rows, maps, panels, strict=True):
                panel = _panel(row, compared, index, limits, style)
                line.append(None if panel is None else _placed(panel, row))
    return columns, panels


def _placed(panel: Panel, row: ComparedRow) -> Panel:
    """A panel whose cells lie where those of the row do."""
    return replace(panel, margins=row.image.geometry.margins)


def _scales(rows: Sequence[ComparedRow], style: DrawStyle) -> dict[str, Limits | None]:
    """The limits of every group of maps."""
    groups: dict[str, list[ComparedMap]] = {}
    for row in rows:
        for name, compared in row.maps.items():
            if compared.reason is None:
                groups.setdefault(_group(compared.kind, name), []).append(compared)
    return {group: _limits(maps, style) for group, maps in groups.items()}


def _titles_name_images(rows: Sequence[ComparedRow]) -> bool:
    """Whether the titles of the rows name the images."""
    return all(row.image.name in row.title for row in rows)


def _group(kind: MapKind, name: str) -> str:
    """Maps of one group share a scale: a kind of map, in all layers, and all its heads.

    Vectors of a single head are shorter than those of all heads joined: another scale.
    """
    if kind is MapKind.HEAD:
        return str(MapKind.HEADS)
    return f"{kind}:" if ":" in name else str(kind)


def map_titles(name: str, maps: Sequence[ComparedMap], index: int) -> tuple[str, ...]:
    """Titles with the head or patch; a patch by its cell if all rows agree, else as requested."""
    kind = maps[0].kind
    text, _, layer = name.partition(" layer ")
    what = str(index) if kind is MapKind.HEADS else text.removeprefix(str(kind))[1:]
    cells = {compared.cell for compared in maps if compared.reason is None} or {None}
    if None not in cells and not what.endswith("px"):
        what = str(*cells) if len(cells) == 1 else f"({what.replace(',', ', ')})"
    titles = [title.format(what) for title in _TITLES[kind]]
    if ":" in text and kind is not MapKind.HEAD:
        short = f"{titles[-1]} h{what}"
        titles = [f"{titles[0]}, head {what}", short, short.replace(" of ", " ")]
    if layer:
        layers = {compared.layer for compared in maps if compared.reason is None}
        number = str(*layers) if len(layers) == 1 else layer
        titles = [f"{titles[0]}, layer {number}", *(f"{title} L{number}" for title in titles)]
    return tuple(titles)


def _marks(row: ComparedRow) -> tuple[Edges, ...]:
    """The boxes of the patches that maps of this row belong to."""
    chosen = (compared.cell for compared in row.maps.values())
    cells = dict.fromkeys(cell for cell in chosen if cell is not None)
    return tuple(cell_mark(*cell, row.image.geometry.grid) for cell in cells)


def _limits(maps: Sequence[ComparedMap], style: DrawStyle) -> Limits | None:
    """The limits that maps of one group share; None if each map has its own."""
    if maps[0].is_colours:
        return None
    values = [each.values for each in maps]
    lowest = min(float(each.min()) for each in values)
    if maps[0].kind in (MapKind.COSINE, MapKind.MATCH) and style.scale is Scale.SHARED:
        return similarity_limits(lowest)
    limits = common_limits(values, style)
    if maps[0].kind in _SIGNED and lowest < 0 and style.scale is Scale.SHARED:
        return Limits(lowest, limits.high) if limits else None
    if maps[0].kind in _FAR_FROM_ZERO and limits and style.scale is Scale.SHARED:
        return Limits(min(lowest, 0.99 * limits.high), limits.high)
    return limits


def _panel(
    row: ComparedRow, compared: ComparedMap, index: int, limits: Limits | None, style: DrawStyle
) -> Panel | None:
    if compared.is_colours:
        return components_panel(("",), compared.values, style, row.image, compared.foreground)
    if compared.reason is not None:
        return empty_panel(("",), (compared.reason, "outside the image"))
    if index >= len(compared.values):
        return None
    grid = row.image.geometry.grid
    edges = () if compared.cell is None else (cell_mark(*compared.cell, grid),)
    if compared.foreground is not None:
        edges = (mask_edges(compared.foreground),)
    return map_panel(("",), compared.values[index], style, limits, edges=edges)


def _caption(rows: Sequence[ComparedRow], style: DrawStyle) -> list[str]:
    """The foot: each model once, with each of its input sizes and its layer; then the scale."""
    sizes: dict[tuple[str, str, str], dict[str, None]] = {}
    for row in rows:
        geometry = row.image.geometry
        size, grid = geometry.model_input, geometry.grid
        sizes_text = f"{theme.size_text(size)} ({theme.size_text(grid)} patches)"
        key = (_label(row), _patches(row), _layer_text(row))
        sizes.setdefault(key, {})[sizes_text] = None
    parts = [
        f"{label}: {patches}, input {', '.join(texts)}{layer}"
        for (label, patches, layer), texts in sizes.items()
    ]
    maps = _present(rows)
    of_output = [
        compared.kind for compared in maps if compared.kind in _TOKENS and compared.layer is None
    ]
    if of_output:
        before = "; norms before it" if MapKind.NORM in of_output else ""
        parts.append(f"tokens: the model's output, after its final norm{before}")
    for compared in maps:
        if compared.rollout is not None:
            first = compared.rollout.start_layer
            text = f"rollout of layers {theme.range_text(first, rows[0].model.depth - 1)}"
            same = len({row.model.depth for row in rows}) == 1
            parts.append(", ".join([text if same else "rollout", *rollout_text(compared.rollout)]))
    parts += [compared.caption for compared in maps if compared.caption]
    kinds = [compared.kind for compared in maps]
    scale = scale_text(style)
    if style.scale is Scale.SHARED:
        scale = "one colour scale per kind of map"
    parts.append(scale)
    if any(kind in _OBJECTS for kind in kinds):
        parts.append("object: what its mask, outlined, is cut from")
    if any(compared.is_colours for compared in maps):
        tokens = ["tokens"] * (MapKind.PCA in kinds or MapKind.FOREGROUND in kinds)
        vectors = ["vectors"] * any(kind in _VECTORS for kind in kinds)
        whose = " and ".join(tokens + vectors)
        parts.append(
            f"PCA: components of each row's own {whose} as red, green, blue, {PERCENTILES_TEXT}"
        )
    return list(dict.fromkeys(parts))


def _patches(row: ComparedRow) -> str:
    """The size of the patches, and where they overlap how far apart they are."""
    model, geometry = row.model, row.image.geometry
    if model.stride is None:
        return f"patches of {model.patch} px"
    every = f"patches of {model.patch} px every {model.stride} px"
    return f"{every} (no cell at the edges: {geometry.edge:g} px)"


def _label(row: ComparedRow) -> str:
    """What the model is called, what was assumed of it, and what was added to it."""
    model = row.model
    shape = [f"shape of {model.shape}"] if model.shape else []
    return ", ".join([row.label, *shape, *model.remarks])


def _present(rows: Sequence[ComparedRow]) -> list[ComparedMap]:
    """One map of each column, of the first row that has it."""
    columns = ([row.maps[name] for row in rows] for name in rows[0].maps)
    firsts = (next((each for each in column if each.reason is None), None) for column in columns)
    return [each for each in firsts if each is not None]


def _layer_text(row: ComparedRow) -> str:
    """The layers of the maps that belong to a single layer."""
    layers = {compared.layer for compared in row.maps.values() if compared.layer is not None}
    if len(layers) > 1:
        numbers = ", ".join(map(str, sorted(layers)))
        return f", layers {numbers} of {theme.range_text(0, row.model.depth - 1)}"
    return "".join(f", {layer_text(layer, row.model)}" for layer in layers)


def _warning(rows: Sequence[ComparedRow]) -> str:
    untrained = dict.fromkeys(row.label for row in rows if row.model.random_weights)
    if not untrained:
        return ""
    if len(untrained) == 1 and all(row.model.random_weights for row in rows):
        return RANDOM
    return f"RANDOM WEIGHTS, not trained: {', '.join(untrained)}"
