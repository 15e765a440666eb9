"""The figure of the ``matrix`` command: every token's attention to every token."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Norm, Scale
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import layer_words, sheet_with_caption
from attnviz.figures.parts.layout import MARGIN, Rect
from attnviz.figures.parts.matrix_panels import LOGIT_CMAP, Colours, Matrix, draw_matrices
from attnviz.figures.parts.panels import (
    image_panel,
    map_panel,
    overlay_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.plots import legend, token_lines
from attnviz.figures.parts.scale import Limits, common_limits, from_zero
from attnviz.figures.parts.token_axis import TokenAxis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import DrawStyle, FigureImage, FloatArray, IntArray, MatrixMaps, ModelInfo
    from attnviz.figures.parts.page import Sheet
    from attnviz.figures.parts.panels import Panel

_POINTS = 125
"""Points an inch of a curve over the tokens, above which neighbours are drawn as their mean."""
_FAINT = 0.01
"""The dark end of logarithmic colours, as a share of even attention 1 / N."""
_INDENT = 0.5
_LABELS = 0.16
_LARGE_MOST = 3.1
_SMALL_LEAST = 1.15


def draw_attention_matrix(
    maps: MatrixMaps,
    image: FigureImage,
    model: ModelInfo,
    style: DrawStyle,
    *,
    norm: Norm = Norm.LOG,
) -> tuple[Figure, ...]:
    """The mean over heads before and after softmax with every token's entropy; then single heads.

    A head alone stands in place of the mean.
    """
    count = len(maps.heads)
    tokens, cells = maps.tokens, len(maps.edges) - 1
    parts = [
        layer_words(maps.layer, model),
        "before softmax: q kᵀ · scale, colours centred at 0",
        _norm_words(norm, style),
        "rows are queries, columns keys",
        "" if cells == tokens else f"{tokens} tokens drawn as the means of {_block_words(maps)}",
        f"entropy in nats, at most ln {tokens} = {math.log(tokens):.2f}",
        _drawn_words(maps),
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    panel_rows(sheet, _maps_on_picture(maps, image, style), panel_aspect(image))
    name = f"Mean of {count} heads" if count > 1 else f"Head {maps.heads[0]}"
    both = (maps.mean_logits, maps.mean_attention)
    logits = [maps.mean_logits, *maps.cell_logits]
    after = [maps.mean_attention, *maps.cell_attention]
    colours = partial(_colours, logits=logits, after=after, maps=maps, style=style, norm=norm)
    draw_matrices(sheet, maps, model, [_pair(name, *both, *colours(*both))])
    _curve(sheet, maps, model)
    if count > 1:
        pairs = [
            _pair(
                f"Head {head}", before, weights, *colours(before, weights), theme.head_colour(head)
            )
            for head, before, weights in zip(
                maps.drawn, maps.cell_logits, maps.cell_attention, strict=True
            )
        ]
        sheet.break_page()
        draw_matrices(sheet, maps, model, pairs)
        _each_head(sheet, maps, image, style)
    return sheet.figures()


def _maps_on_picture(maps: MatrixMaps, image: FigureImage, style: DrawStyle) -> list[Panel]:
    """The picture, the entropy of each patch's row, alone and on the picture, and the map to CLS.

    The scale of --scale is that of attention weights, which entropies do not share.
    """
    entropy = maps.token_entropy.mean(axis=0)[maps.prefix :].reshape(maps.grid)
    panels = [
        image_panel(image),
        map_panel(("Entropy of each patch", "Entropy"), entropy, style, None),
        overlay_panel(("Entropy on picture", "On picture"), image, entropy, style, None),
    ]
    if maps.to_cls is not None:
        to_cls = maps.to_cls.mean(axis=0)
        shared = common_limits([to_cls], style) if style.scale is Scale.FIXED else None
        titles = ("Attention of patches to CLS", "Patches to CLS", "To CLS")
        panels.append(map_panel(titles, to_cls, style, shared or None))
    return panels


def _pair(
    name: str,
    logits: FloatArray,
    after: FloatArray,
    before: Colours,
    weights: Colours,
    swatch: str | None = None,
) -> tuple[Matrix, Matrix]:
    """A head, or the mean, before and after softmax."""
    short = name.removeprefix("Head ").removesuffix(" heads")
    return (
        Matrix(
            (f"{name}, before softmax", f"{name}, before", f"{short}, before"),
            logits,
            before,
            swatch,
        ),
        Matrix(
            (f"{name}, after softmax", f"{name}, after", f"{short}, after"), after, weights, swatch
        ),
    )


def _colours(
    before: FloatArray,
    weights: FloatArray,
    *,
    logits: list[FloatArray],
    after: list[FloatArray],
    maps: MatrixMaps,
    style: DrawStyle,
    norm: Norm,
) -> tuple[Colours, Colours]:
    """The colours of one pair: on its own limits, or on those of all matrices of the figure."""
    of_logits = [before] if style.scale is Scale.PANEL else logits
    reach = max(_reach(values) for values in of_logits) or 1.0
    shared = common_limits(after, style)
    limits = shared or from_zero(float(weights.max()))
    if norm is Norm.LOG:
        lowest = min(float(values.min()) for values in (after if shared else [weights]))
        low = limits.low if limits.low > 0 else max(lowest, _FAINT / maps.tokens)
        limits = Limits(low, max(limits.high, 1.01 * low))
    return (
        Colours(Limits(-reach, reach), LOGIT_CMAP),
        Colours(limits, style.cmap, norm is Norm.LOG),
    )


def _reach(logits: FloatArray) -> float:
    """The largest magnitude; a masked logit, minus infinity, has none."""
    finite = logits[np.isfinite(logits)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def _norm_words(norm: Norm, style: DrawStyle) -> str:
    if norm is Norm.LINEAR:
        return "after: colours by weight"
    if style.scale is Scale.FIXED:
        return "after: colours by the logarithm of the weight"
    return "after: colours by the logarithm of the weight, none below a hundredth of 1/N"


def _block_words(maps: MatrixMaps) -> str:
    size = int(np.diff(maps.edges).max())
    if size > maps.grid.width:
        return f"blocks of {size // maps.grid.width} rows of patches"
    return f"blocks of {size} neighbours in a row of patches"


def _drawn_words(maps: MatrixMaps) -> str:
    left_out = len(maps.heads) - len(maps.drawn)
    if not left_out:
        return ""
    named = ", ".join(map(str, maps.drawn))
    return f"single heads {named}: spread over the range of entropy of all {len(maps.heads)}"


def _each_head(sheet: Sheet, maps: MatrixMaps, image: FigureImage, style: DrawStyle) -> None:
    """The entropies of each drawn head, and its map to CLS."""
    patches = maps.token_entropy[:, maps.prefix :].reshape(len(maps.heads), *maps.grid)
    kinds = [("Entropy", patches)] + ([] if maps.to_cls is None else [("To CLS", maps.to_cls)])
    panels = [
        [
            map_panel(
                (f"{name}, head {head}", f"{name} {head}"),
                values[maps.heads.index(head)],
                style,
                None,
                swatch=theme.head_colour(head),
            )
            for head in maps.drawn
        ]
        for name, values in kinds
    ]
    if len(maps.drawn) <= 2:
        panels = [[panel for row in panels for panel in row]]
    for row in panels:
        panel_rows(sheet, row, panel_aspect(image), at_least=4)


def _curve(sheet: Sheet, maps: MatrixMaps, model: ModelInfo) -> None:
    """Entropy over the tokens: of each drawn head, and the mean of all."""
    height, limit = 1.45, math.log(maps.tokens)
    page = sheet.room(height + theme.LINE_INCHES)
    edges, run = _runs(maps, round(_POINTS * sheet.width))
    points = np.add.reduceat(maps.token_entropy, edges[:-1], axis=1) / np.diff(edges)  # H, n
    lines = [(points[maps.heads.index(head)], theme.head_colour(head), 0.5) for head in maps.drawn]
    if len(maps.heads) > 1:
        lines.append((points.mean(axis=0), theme.INK, 1.1))
    bound = (limit, f"uniform: ln {maps.tokens} = {limit:.2f}")
    axis = partial(TokenAxis, edges, maps.grid, model)
    heading = "Entropy of each token, nats"
    if run > 1:
        heading = f"Entropy of tokens, nats, means of {run} neighbours"
    token_lines(page, Rect(MARGIN, page.y, sheet.width, height), lines, axis, heading, bound)
    page.y += height
    legend(sheet, maps.drawn)


def _runs(maps: MatrixMaps, most: int) -> tuple[IntArray, int]:
    """Edges (n + 1,) of runs of patches of one row, about ``most`` in all, and their length."""
    high, wide = maps.grid
    run = min(wide, math.ceil(high * wide / most))
    starts = np.arange(high)[:, None] * wide + np.arange(0, wide, run)
    prefix = np.arange(maps.prefix)
    return np.concatenate([prefix, maps.prefix + starts.ravel(), [maps.tokens]]), run
