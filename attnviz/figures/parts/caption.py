"""The foot of a figure: model, layer, sizes, colour scale, and attention on tokens not drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Query
from attnviz.domain.row_statistics import sink_ratio
from attnviz.errors import UsageError
from attnviz.figures.parts import theme
from attnviz.figures.parts.layout import MARGIN, WIDTH_MIN
from attnviz.figures.parts.page import Sheet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import DrawStyle, FigureImage, FitGeometry, FloatArray, ModelInfo

RANDOM = "RANDOM WEIGHTS: this model is not trained"


def sheet_with_caption(
    model: ModelInfo, image: FigureImage, style: DrawStyle, parts: Sequence[str]
) -> Sheet:
    """An empty sheet whose foot states the model, the input and the grid, followed by ``parts``.

    Empty parts are left out.

    Raises:
        UsageError: The figure is too narrow for readable text.
    """
    size, grid = image.geometry.model_input, image.geometry.grid
    lines = [
        *model_parts(model),
        f"input {theme.size_text(size)}",
        f"grid {theme.size_text(grid)} of {model.patches_text}",
        edge_text(image.geometry),
        *parts,
        *image.notes,
    ]
    sheet = sheet_of(style, [line for line in lines if line], RANDOM * model.random_weights)
    sheet.margins = image.geometry.margins
    return sheet


def edge_text(geometry: FitGeometry) -> str:
    """How much at the edges has no cell, since patches overlap."""
    return f"no cell at the edges: {geometry.edge:g} input px" if geometry.edge else ""


def model_parts(model: ModelInfo) -> list[str]:
    """What the model is called, what was assumed of it, and what was added to it."""
    return [model.title, *model.remarks]


def sheet_of(style: DrawStyle, parts: Sequence[str], warning: str = "") -> Sheet:
    """An empty sheet with ``parts`` at its foot, wrapped, below a warning in bold.

    A warning that is too long is cut at its first colon.

    Raises:
        UsageError: The figure is too narrow for readable text.
    """
    if style.width < WIDTH_MIN:
        raise UsageError(
            f"a figure {style.width:g} inches wide cannot hold readable text",
            f"choose a width of {WIDTH_MIN:g} inches or more",
        )
    lines = theme.wrap([theme.printable(part) for part in parts], style.width - 2 * MARGIN)
    if theme.text_width(warning, bold=True) > style.width - 2 * MARGIN:
        warning = warning.split(":", maxsplit=1)[0]
    return Sheet(style, lines, warning)


def layer_text(layer: int, model: ModelInfo) -> str:
    """The layer and the range that it is one of: ``layer 11 of 0-11``; pooling follows them."""
    if layer == model.depth:
        return f"attention pooling after layers {theme.range_text(0, model.depth - 1)}"
    return f"layer {layer} of {theme.range_text(0, model.depth - 1)}"


def layers_text(layers: tuple[int, ...], model: ModelInfo) -> str:
    """The layers, and the range that they are chosen from."""
    if layers == tuple(range(model.depth)):
        return f"all layers, {theme.range_text(0, model.depth - 1)}"
    return f"layers {_ranges(layers)} of {theme.range_text(0, model.depth - 1)}"


def _ranges(layers: tuple[int, ...]) -> str:
    """Layers as ranges: ``0-3, 7, 9-11``."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    ranges = (theme.range_text(run[0], run[-1]) if len(run) > 1 else str(run[0]) for run in runs)
    return ", ".join(ranges)


def query_text(query: Query) -> str:
    """Whose attention is shown."""
    if query.register is not None:
        return f"attention of register {query.register}"
    return {
        Query.CLS: "attention of the CLS token",
        Query.MEAN: "mean attention of all patches",
        Query.POOL: "attention of the tokens that the latent query reads, weighted as it does",
    }[query]


def prefix_text(prefix: FloatArray, model: ModelInfo) -> str:
    """The mean share of attention on tokens that are not patches: CLS and registers.

    prefix: (..., P) raw weights, the CLS token (and a distillation token) first.
    """
    if not prefix.shape[-1]:
        return ""
    return "not drawn: " + ", ".join(prefix_shares(prefix, model))


def prefix_shares(prefix: FloatArray, model: ModelInfo, word: str = "on") -> list[str]:
    """``3.1 % on CLS``, and the same of distillation and register tokens.

    prefix: (..., P) weights in the model's order of tokens. word: in place of "on".
    """
    mass = np.asarray(prefix, np.float64).reshape(-1, prefix.shape[-1]).mean(axis=0)  # (P,)
    shares = []
    if model.has_cls:
        shares.append(f"{theme.share(float(mass[0]))} {word} CLS")
    others = mass.size - int(model.has_cls) - model.registers
    if others > 0:
        first = int(model.has_cls)
        shares.append(
            f"{theme.share(float(mass[first : first + others].sum()))} {word} distillation"
        )
    if model.registers:
        name = "1 register" if model.registers == 1 else f"{model.registers} registers"
        shares.append(f"{theme.share(float(mass[-model.registers :].sum()))} {word} {name}")
    return shares


def entropy_text(tokens: int, heads: int = 1) -> str:
    """What H is, and its value for uniform attention. heads: over how many H is a mean."""
    what = "H: mean entropy of the heads" if heads > 1 else "H: entropy"
    return f"{what} in nats, at most ln {tokens} = {np.log(tokens):.2f}"


def sinks_text(received: FloatArray, image: FigureImage, model: ModelInfo) -> str:
    """The token that receives most attention, and how far it stands out. received: (H, N)."""
    mean = received.mean(axis=0)
    name = token_name(int(mean.argmax()), image, model)
    ratio = theme.number(float(sink_ratio(mean)))
    mean_of = ", mean over heads" if len(received) > 1 else ""
    return f"sink: {name} receives {ratio} times the median attention{mean_of}"


def token_name(index: int, image: FigureImage, model: ModelInfo) -> str:
    """What a token is called: ``CLS``, ``R1``, or a patch by its row and column: ``(3, 7)``."""
    if index < model.prefix:
        return model.prefix_names[index]
    row, column = divmod(index - model.prefix, image.geometry.grid.width)
    return f"({row}, {column})"
