"""The foot of a figure: model, layer, sizes, colour scale, and attention on tokens not drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Query
from attnviz.errors import UsageError
from attnviz.figures.parts import theme
from attnviz.figures.parts.layout import MARGIN, WIDTH_MIN
from attnviz.figures.parts.page import Sheet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import DrawStyle, FigureImage, FloatArray, ModelInfo

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
        f"grid {theme.size_text(grid)} of {model.patch} px patches",
        *(part for part in parts if part),
    ]
    return sheet_of(style, lines, RANDOM if model.random_weights else "")


def model_parts(model: ModelInfo) -> list[str]:
    """What the model is called, and what was assumed of it."""
    return [model.title, *(["mean and std assumed"] if model.statistics_assumed else [])]


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
    """The layer and the range that it is one of: ``layer 11 of 0-11``."""
    return f"layer {layer} of {theme.range_text(0, model.depth - 1)}"


def query_text(query: Query) -> str:
    """Whose attention is shown."""
    return "attention of the CLS token" if query is Query.CLS else "mean attention of all patches"


def prefix_text(prefix: FloatArray, model: ModelInfo) -> str:
    """The mean share of attention on tokens that are not patches: CLS and registers.

    prefix: (..., P) raw weights, the CLS token (and a distillation token) first.
    """
    if not prefix.shape[-1]:
        return ""
    return "not drawn: " + ", ".join(prefix_shares(prefix, model))


def prefix_shares(prefix: FloatArray, model: ModelInfo) -> list[str]:
    """``3.1 % on CLS``, and the same of distillation and register tokens.

    prefix: (..., P) weights in the model's order of tokens.
    """
    mass = np.asarray(prefix, np.float64).reshape(-1, prefix.shape[-1]).mean(axis=0)  # (P,)
    shares = []
    if model.has_cls:
        shares.append(f"{theme.share(float(mass[0]))} on CLS")
    others = mass.size - int(model.has_cls) - model.registers
    if others > 0:
        first = int(model.has_cls)
        shares.append(f"{theme.share(float(mass[first : first + others].sum()))} on distillation")
    if model.registers:
        name = "1 register" if model.registers == 1 else f"{model.registers} registers"
        shares.append(f"{theme.share(float(mass[-model.registers :].sum()))} on {name}")
    return shares


def entropy_text(tokens: int, heads: int = 1) -> str:
    """What H is, and its value for uniform attention. heads: over how many H is a mean."""
    what = "H: mean entropy of the heads" if heads > 1 else "H: entropy"
    return f"{what} in nats, at most ln {tokens} = {np.log(tokens):.2f}"
