"""The figure of the ``qkv`` command: queries, keys and values, one page each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.domain import Part, Size
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import layer_text, sheet_with_caption
from attnviz.figures.parts.colour_bars import SIGNED_CMAP, ColourScale, shared_bar, ticked_bar
from attnviz.figures.parts.component_colours import PERCENTILES_TEXT
from attnviz.figures.parts.components import components_overlay, components_panel
from attnviz.figures.parts.layout import GAP, MARGIN, Rect
from attnviz.figures.parts.matrix_panels import draw_border, names_along
from attnviz.figures.parts.panels import (
    image_panel,
    map_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.scale import Limits, common_limits, scale_text
from attnviz.figures.parts.token_axis import TokenAxis, area_shares, draw_gaps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import ByteArray, DrawStyle, FigureImage, FloatArray, ModelInfo, QkvMaps
    from attnviz.figures.parts.page import Page, Sheet

_NAMES = {Part.QUERY: "Queries Q", Part.KEY: "Keys K", Part.VALUE: "Values V"}
_REACH = 99.5
"""Percentile of the magnitudes that has full colour in a matrix."""
_INDENT = 0.5
_PANEL_TALLEST = 1.72
"""Height of panels in inches, so that those of tall images leave room for the matrices."""
_NARROWEST = 0.42
"""Minimum width of the matrix of a head in inches."""
_WIDEST = 3.2
_SHORTEST, _TALLEST = 1.2, 2.3
_BAR = 0.28


def draw_qkv(
    maps: QkvMaps, image: FigureImage, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """A page each for queries, keys and values: components, norms, and the matrices themselves.

    Components (as colours) and norms are those of all heads concatenated and of each head.
    """
    colours = f"components 1, 2, 3 of the patches as red, green, blue, {PERCENTILES_TEXT}"
    matrices = f"matrices: tokens down, width of a head across, full colour at the {_REACH:g}th"
    parts = [
        layer_text(maps.layer, model),
        "as the model hands them to attention",
        f"PCA: {colours}; share of the variance in percent",
        f"norms of heads in {scale_text(style)}" if len(maps.heads) > 1 else "",
        f"{matrices} percentile of magnitude; below: mean ± standard deviation",
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    for index, part in enumerate(maps.parts):
        if index:
            sheet.break_page()
        sheet.running = ""
        _heading(sheet, maps, index, part)
        sheet.running = f"{_NAMES[part]}, continued"
        _panels(sheet, maps, index, image, style)
        _matrices(sheet, maps, index, model)
    return sheet.figures()


def _heading(sheet: Sheet, maps: QkvMaps, index: int, part: Part) -> None:
    """Name, shape, mean and standard deviation."""
    vectors = maps.vectors[index].astype(np.float64)
    heads, tokens, width = vectors.shape
    count = f"{heads} heads {theme.TIMES} " if heads > 1 else f"head {maps.heads[0]}: "
    parts = [
        _NAMES[part],
        f"{count}{tokens} tokens {theme.TIMES} {width}",
        f"mean {round(float(vectors.mean()), 3) + 0.0:.3f}, standard deviation {vectors.std():.3f}",
    ]
    for line in theme.wrap(parts, sheet.width, theme.TITLE_PT):
        page = sheet.room(theme.LINE_INCHES + 0.02)
        page.text(MARGIN, page.y + 0.1, line, size=theme.TITLE_PT, bold=line.startswith(parts[0]))
        page.y += theme.LINE_INCHES + 0.02
    sheet.skip(0.03)


def _panels(
    sheet: Sheet, maps: QkvMaps, part_index: int, image: FigureImage, style: DrawStyle
) -> None:
    """The image; components and norms of all heads concatenated, then of each head."""
    aspect, grid = panel_aspect(image), maps.joint_components.shape[1:3]
    norms = maps.norms[part_index]  # H, N
    each = norms[:, maps.prefix :].reshape(-1, *grid)
    # Concatenated vectors are longer, and so have their own scale.
    shared = common_limits([each], style) if len(each) > 1 else None
    of_all = f"all {len(each)} heads" if len(each) > 1 else f"head {maps.heads[0]}"
    explained = theme.share(float(maps.joint_explained[part_index].sum()))
    titles = (f"PCA of {of_all} · {explained}", f"PCA · {explained}", "PCA")
    components = maps.joint_components[part_index]
    panels = [
        image_panel(image),
        components_panel(titles, components, style, image),
        components_overlay(("PCA on picture", "On picture"), components, style, image),
        map_panel((f"Norm, {of_all}", "Norm"), maps.joint_norms[part_index], style, None),
    ]
    panel_rows(sheet, panels, aspect, at_least=4, tallest=_PANEL_TALLEST)
    if len(each) > 1:
        shares = [theme.share(float(share)) for share in maps.explained[part_index].sum(axis=1)]
        head_components = [
            components_panel(
                (f"PCA head {head} · {share}", f"PCA {head} · {share}", f"PCA {head}"),
                scores,
                style,
                image,
                swatch=theme.head_colour(head),
            )
            for head, share, scores in zip(
                maps.heads, shares, maps.components[part_index], strict=True
            )
        ]
        panel_rows(sheet, head_components, aspect, at_least=4, tallest=_PANEL_TALLEST)
        head_norms = [
            map_panel(
                (f"Norm, head {head}", f"Norm {head}"),
                values,
                style,
                shared,
                swatch=theme.head_colour(head),
            )
            for head, values in zip(maps.heads, each, strict=True)
        ]
        panel_rows(sheet, head_norms, aspect, at_least=4, tallest=_PANEL_TALLEST)
    if shared:
        shared_bar(sheet, shared, "Norm of a head")


class _Strips(NamedTuple):
    """The layout of the matrices of heads: sizes in inches, and the lines below each of them."""

    rows: int
    columns: int
    width: float
    height: float
    below: list[tuple[str, ...]]

    @property
    def step(self) -> float:
        """From a row of matrices to the next."""
        return 0.32 + self.height + (len(self.below[0]) - 1) * theme.LINE_INCHES


def _fit_strips(sheet: Sheet, vectors: FloatArray) -> _Strips:
    """As many matrices (H, N, d) side by side as remain readable, on the rest of the page."""
    room = sheet.width - _INDENT
    most = max(1, int((room + GAP) / (_NARROWEST + GAP)))
    rows = -(-len(vectors) // most)
    columns = -(-len(vectors) // rows)
    width = min((room - (columns - 1) * GAP) / columns, _WIDEST)
    statistics = [
        (f"{round(float(values.mean()), 2) + 0.0:.2f}", f"± {float(values.std()):.2f}")
        for values in vectors.astype(np.float64)
    ]
    joined: list[tuple[str, ...]] = [(" ".join(lines),) for lines in statistics]
    if max(theme.text_width(line) for (line,) in joined) > width:
        joined = [*statistics]
    strips = _Strips(rows, columns, width, 0.0, joined)
    height = (sheet.limit - sheet.pages[-1].y - _BAR) / rows - strips.step
    return strips._replace(height=min(height, _TALLEST) if height >= _SHORTEST else _TALLEST)


def _matrices(sheet: Sheet, maps: QkvMaps, part_index: int, model: ModelInfo) -> None:
    """The matrices (N, d) of the heads side by side, in as many rows as needed, on one scale."""
    vectors = maps.vectors[part_index]  # H, N, d
    reach = float(np.percentile(np.abs(vectors), _REACH)) or 1.0
    scale = ColourScale(Limits(-reach, reach).clipping([vectors]), SIGNED_CMAP)
    strips = _fit_strips(sheet, vectors)
    for start in range(0, len(vectors), strips.columns):
        last = start + strips.columns >= len(vectors)
        page = sheet.room(strips.step + (_BAR if last else 0.0))
        for index in range(start, min(start + strips.columns, len(vectors))):
            left = MARGIN + _INDENT + (index - start) * (strips.width + GAP)
            rect = Rect(left, page.y + 0.16, strips.width, strips.height)
            box = _matrix(page, maps.heads[index], rect)
            axis = _token_axis(maps, model, box.height)
            page.image(partial(_strip_pixels, vectors[index], scale, axis), box)
            draw_border(page, box)
            if index == start:
                names_along(page, axis, box)
            for number, line in enumerate(strips.below[index]):
                page.text(left, box.bottom + 0.12 + number * theme.LINE_INCHES, line)
        page.y += strips.step
    page = sheet.room(_BAR)
    width = min(2.6, sheet.width - _INDENT)
    ticked_bar(page, scale, maps.tokens, Rect(MARGIN + _INDENT, page.y + 0.02, width, 0.06))
    page.y += _BAR


def _matrix(page: Page, head: int, rect: Rect) -> Rect:
    """The name of a head above its matrix; returns the rectangle of the matrix on whole pixels."""
    page.block(Rect(rect.left, rect.top - 0.125, 0.075, 0.075), theme.head_colour(head))
    name = f"Head {head}" if rect.width > 0.6 else str(head)
    page.text(rect.left + 0.115, rect.top - 0.05, name, size=theme.TITLE_PT)
    return page.snapped(rect)


def _token_axis(maps: QkvMaps, model: ModelInfo, inches: float) -> TokenAxis:
    grid = Size(*maps.joint_components.shape[1:3])
    return TokenAxis(np.arange(maps.tokens + 1), grid, model, inches)


def _strip_pixels(values: FloatArray, scale: ColourScale, axis: TokenAxis, size: Size) -> ByteArray:
    """Values (N, d) as pixels, averaged by area: tokens down, dimensions across."""
    down, rows = axis.shares(size.height)
    means = down @ values @ area_shares(values.shape[1], size.width).T
    return draw_gaps(scale.colours(np.asarray(means, np.float32)), rows, slice(0, 0))
