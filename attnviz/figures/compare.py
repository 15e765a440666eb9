"""The figure of the ``compare`` command: pictures and models down, maps across."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain import MapKind, Scale
from attnviz.figures import style as ink
from attnviz.figures.caption import RANDOM, sheet_of
from attnviz.figures.features import components_panel, likeness_limits
from attnviz.figures.grid import Column, Row, draw_grid
from attnviz.figures.panels import map_panel, panel_aspect, picture_panel
from attnviz.figures.scale import Limits, common_limits, scale_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import ComparedMap, ComparedRow, DrawStyle
    from attnviz.figures.panels import Panel

_TITLES = {
    MapKind.MEAN: ("Mean of heads", "Mean"),
    MapKind.HEAD: ("Head {}", "{}"),
    MapKind.HEADS: ("Head {}", "{}"),
    MapKind.PATCH: ("Patch {}", "{}"),
    MapKind.ROLLOUT: ("Rollout",),
    MapKind.SCORE: ("Token score", "Score"),
    MapKind.PCA: ("PCA of tokens", "PCA"),
    MapKind.FOREGROUND: ("PCA of foreground", "Foreground"),
    MapKind.NORM: ("Norm of tokens", "Norm"),
    MapKind.COSINE: ("Cosine to {}", "cos {}"),
}


def draw_comparison(rows: Sequence[ComparedRow], style: DrawStyle) -> tuple[Figure, ...]:
    """A row for every picture and model: the picture, and the maps under the names of their kinds.

    With the shared scale, a kind of map has one scale and one colour bar in all rows; the maps of
    ``heads`` count as one kind.
    """
    names = list(rows[0].maps)
    columns = [Column(("Picture",))]
    panels: list[list[Panel | None]] = [[picture_panel(row.picture)] for row in rows]
    for name in names:
        found = [row.maps[name] for row in rows]
        limits = _limits(found, style)
        most = 1 if found[0].is_colours else max(len(shown.values) for shown in found)
        for index in range(most):
            columns.append(Column(_titles(name, found[0].kind, index), limits, name))
            for row, shown, line in zip(rows, found, panels, strict=True):
                line.append(_panel(row, shown, index, limits, style))
    sheet = sheet_of(style, _words(rows, style), _warning(rows))
    lines = [
        Row(row.title, panel_aspect(row.picture), tuple(line))
        for row, line in zip(rows, panels, strict=True)
    ]
    draw_grid(sheet, columns, lines)
    return sheet.figures()


def _titles(name: str, kind: MapKind, index: int) -> tuple[str, ...]:
    """Of ``head:3`` what follows the colon, of ``heads`` the index, of ``patch@3,7`` the place."""
    what = str(index) if kind is MapKind.HEADS else name.removeprefix(str(kind))[1:]
    if "@" in name and not what.endswith("px"):
        what = f"({what.replace(',', ', ')})"
    return tuple(title.format(what) for title in _TITLES[kind])


def _limits(found: Sequence[ComparedMap], style: DrawStyle) -> Limits | None:
    """The limits that a kind of map has in all rows; None where each map has its own."""
    if found[0].is_colours:
        return None
    if found[0].kind is MapKind.COSINE and style.scale is Scale.SHARED:
        return likeness_limits(min(float(shown.values.min()) for shown in found))
    return common_limits([shown.values for shown in found], style)


def _panel(
    row: ComparedRow, shown: ComparedMap, index: int, limits: Limits | None, style: DrawStyle
) -> Panel | None:
    if shown.is_colours:
        return components_panel(("",), shown.values, style, row.picture, shown.foreground)
    if index >= len(shown.values):
        return None
    return map_panel(("",), shown.values[index], style, limits)


def _words(rows: Sequence[ComparedRow], style: DrawStyle) -> list[str]:
    """What was run, each model once and with each input size once, and the scale."""
    sizes: dict[tuple[str, int], dict[str, None]] = {}
    for row in rows:
        geometry = row.picture.geometry
        size, grid = geometry.model_input, geometry.grid
        words = (
            f"{size.height}{ink.TIMES}{size.width} ({grid.height}{ink.TIMES}{grid.width} patches)"
        )
        sizes.setdefault((row.model.name, row.model.patch), {})[words] = None
    said = [
        f"{name}: patches of {patch} px, input {', '.join(words)}"
        for (name, patch), words in sizes.items()
    ]
    kinds = [shown.kind for shown in rows[0].maps.values()]
    scale = scale_words(style)
    if style.scale is Scale.SHARED:
        scale = "one colour scale a kind of map"
    said.append(scale)
    if MapKind.PCA in kinds or MapKind.FOREGROUND in kinds:
        said.append("PCA: components of each row's own tokens as red, green, blue")
    return list(dict.fromkeys(said))


def _warning(rows: Sequence[ComparedRow]) -> str:
    untrained = dict.fromkeys(row.model.name for row in rows if row.model.random_weights)
    if not untrained:
        return ""
    if all(row.model.random_weights for row in rows):
        return RANDOM
    return f"RANDOM WEIGHTS: {', '.join(untrained)} not trained"
