"""The figure of the ``matrix`` command: attention of every token to every token."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Norm, Scale
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import layer_text, sheet_with_caption, sinks_text
from attnviz.figures.parts.colour_bars import SIGNED_CMAP, ColourScale
from attnviz.figures.parts.held import hold
from attnviz.figures.parts.layout import MARGIN, Rect
from attnviz.figures.parts.matrix_panels import Matrix, draw_matrices
from attnviz.figures.parts.panels import (
    image_panel,
    map_panel,
    overlay_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.plots import head_legend, token_lines
from attnviz.figures.parts.scale import Limits, common_limits, from_zero, own_limits
from attnviz.figures.parts.token_axis import TokenAxis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import DrawStyle, FigureImage, FloatArray, IntArray, MatrixMaps, ModelInfo
    from attnviz.figures.parts.page import Sheet
    from attnviz.figures.parts.panels import Panel

_POINTS = 125
"""Points per inch of a curve over the tokens; beyond that, neighbours are averaged."""
_FAINT = 0.01
"""The low end of a logarithmic colour scale, as a share of uniform attention 1 / N."""


_PANEL_TALLEST = 1.72
"""Height of panels in inches, so that those of tall images stay on the page of their matrices."""


def draw_attention_matrix(
    maps: MatrixMaps,
    image: FigureImage,
    model: ModelInfo,
    style: DrawStyle,
    *,
    norm: Norm = Norm.LOG,
) -> tuple[Figure, ...]:
    """The mean over heads before and after softmax, the entropy of every token, single heads.

    A single head takes the place of the mean.
    """
    count = len(maps.heads)
    logits = [maps.mean_logits, *maps.cell_logits]
    after = [maps.mean_attention, *maps.cell_attention]
    colours = partial(_colours, logits=logits, after=after, maps=maps, style=style, norm=norm)
    scales = [colours(*each) for each in zip(logits, after, strict=True)]
    tokens, cells = maps.tokens, len(maps.edges) - 1
    parts = [
        layer_text(maps.layer, model),
        _logit_text(maps, [before for before, _ in scales]),
        _norm_text(norm, style),
        "rows are queries, columns keys",
        "" if cells == tokens else f"{tokens} tokens drawn as the means of {_block_text(maps)}",
        f"entropy in nats, at most ln {tokens} = {math.log(tokens):.2f}",
        "" if maps.received is None else _received_text(maps, maps.received, image, model),
        _drawn_text(maps),
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    panel_rows(sheet, _maps_on_picture(maps, image, style), panel_aspect(image))
    name = f"Mean of {count} heads" if count > 1 else f"Head {maps.heads[0]}"
    draw_matrices(sheet, maps, model, [_pair(name, logits[0], after[0], *scales[0])])
    _curve(sheet, maps, model)
    if count > 1:
        pairs = [
            _pair(f"Head {head}", before, weights, *pair, theme.head_colour(head))
            for head, before, weights, pair in zip(
                maps.drawn, logits[1:], after[1:], scales[1:], strict=True
            )
        ]
        sheet.break_page()
        draw_matrices(sheet, maps, model, pairs)
        _each_head(sheet, maps, image, style)
    return sheet.figures()


def _received_text(
    maps: MatrixMaps, received: FloatArray, image: FigureImage, model: ModelInfo
) -> str:
    """What the attention received is, and the token that receives most."""
    return f"attention received: from all {maps.tokens} tokens, on average 1; " + sinks_text(
        received, image, model
    )


def _maps_on_picture(maps: MatrixMaps, image: FigureImage, style: DrawStyle) -> list[Panel]:
    """The image, the entropy of each patch's row, alone and on the image, to CLS, and received.

    ``style.scale`` is about attention weights, so entropies always have their own scale.
    """
    entropy = maps.patch_entropy
    panels = [
        image_panel(image),
        map_panel(("Entropy of each patch", "Entropy"), entropy, style, None),
        overlay_panel(("Entropy on picture", "On picture"), image, entropy, style, None),
    ]
    if maps.to_cls is not None:
        to_cls = maps.to_cls.mean(axis=0)
        fixed = common_limits([to_cls], style) if style.scale is Scale.FIXED else None
        titles = ("Attention of patches to CLS", "Patches to CLS", "To CLS")
        panel = map_panel(titles, to_cls, style, fixed)
        # Unlike that of the matrices, its scale is never logarithmic: it has its own colour bar.
        panels.append(replace(panel, limits=fixed or panel.limits))
    if maps.received is not None:
        received = maps.received.mean(axis=0)[maps.prefix :].reshape(maps.grid)
        panels.append(map_panel(("Attention received", "Received"), received, style, None))
    return panels


def _pair(
    name: str,
    logits: FloatArray,
    after: FloatArray,
    before: ColourScale,
    weights: ColourScale,
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
) -> tuple[ColourScale, ColourScale]:
    """The colour scales of one pair: on its own limits, or on those of all matrices."""
    shared = common_limits(after, style)
    limits = shared or from_zero(float(weights.max()))
    if norm is Norm.LOG:
        lowest = min(float(values.min()) for values in (after if shared else [weights]))
        low = limits.low if limits.low > 0 else max(lowest, _FAINT / maps.tokens)
        limits = Limits(low, max(limits.high, 1.01 * low))
    limits = limits.clipping(after if shared else [weights])
    return (
        _logit_scale([before] if style.scale is Scale.PANEL else logits, style),
        ColourScale(limits, style.cmap, norm is Norm.LOG),
    )


def _logit_scale(logits: list[FloatArray], style: DrawStyle) -> ColourScale:
    """From the lowest to the highest logit: white at 0 if there are both signs.

    Logits of one sign have the colour map of all other maps, so that their range fills it.
    """
    finite = np.concatenate([values[np.isfinite(values)] for values in logits])  # not masked ones
    if finite.size and finite.min() < 0 < finite.max():
        limits = Limits(*hold(float(finite.min()), float(finite.max())))
        return ColourScale(limits, SIGNED_CMAP, symmetric=True)
    return ColourScale(own_limits(finite) if finite.size else from_zero(1.0), style.cmap)


def _logit_text(maps: MatrixMaps, scales: Sequence[ColourScale]) -> str:
    """What logits are, their range over all heads, and what is white."""
    ends = maps.logit_range[np.isfinite(maps.logit_range)]
    if not ends.size:
        return "before softmax: q kᵀ · scale"
    low, high = float(ends.min()), float(ends.max())
    first, last = theme.number_pair(low, high) if low < high else (theme.number(low),) * 2
    signed = [scale.symmetric for scale in scales]
    zero = ", white at 0" + ("" if all(signed) else " if both signs occur") if any(signed) else ""
    return f"before softmax: q kᵀ · scale, from {first} to {last}{zero}"


def _norm_text(norm: Norm, style: DrawStyle) -> str:
    if norm is Norm.LINEAR:
        return "after: colours by weight"
    if style.scale is Scale.FIXED:
        return "after: colours by the logarithm of the weight"
    return "after: colours by the logarithm of the weight, none below a hundredth of 1/N"


def _block_text(maps: MatrixMaps) -> str:
    size = int(np.diff(maps.edges).max())
    if size > maps.grid.width:
        return f"blocks of {size // maps.grid.width} rows of patches"
    return f"blocks of {size} neighbours in a row of patches"


def _drawn_text(maps: MatrixMaps) -> str:
    left_out = len(maps.heads) - len(maps.drawn)
    if not left_out:
        return ""
    named = ", ".join(map(str, maps.drawn))
    return f"single heads {named}: spread over the range of entropy of all {len(maps.heads)}"


def _each_head(sheet: Sheet, maps: MatrixMaps, image: FigureImage, style: DrawStyle) -> None:
    """The entropies of each single head, and its map to CLS."""
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
        panel_rows(sheet, row, panel_aspect(image), at_least=4, tallest=_PANEL_TALLEST)


def _curve(sheet: Sheet, maps: MatrixMaps, model: ModelInfo) -> None:
    """Entropy over the tokens: of each single head, and the mean of all heads."""
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
    head_legend(sheet, maps.drawn)


def _runs(maps: MatrixMaps, most: int) -> tuple[IntArray, int]:
    """Edges (n + 1,) of about ``most`` runs of patches within rows, and the length of a run."""
    height, width = maps.grid
    run = min(width, math.ceil(height * width / most))
    starts = np.arange(height)[:, None] * width + np.arange(0, width, run)
    prefix = np.arange(maps.prefix)
    return np.concatenate([prefix, maps.prefix + starts.ravel(), [maps.tokens]]), run
