"""The foot of a figure: model, layer, sizes, scale, and the attention on tokens not drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Query
from attnviz.errors import UsageError
from attnviz.figures.parts import style as ink
from attnviz.figures.parts.layout import MARGIN, WIDTH_MIN
from attnviz.figures.parts.page import Sheet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import DrawStyle, FloatArray, ModelInfo, Picture

RANDOM = "RANDOM WEIGHTS: this model is not trained"


def sheet_with_caption(
    model: ModelInfo, picture: Picture, style: DrawStyle, parts: Sequence[str]
) -> Sheet:
    """Empty pages whose foot says what was run, followed by ``parts``.

    Raises:
        UsageError: The figure is too narrow for readable text.
    """
    geometry = picture.geometry
    said = [
        model.title,
        *statistics_words(model),
        f"input {geometry.model_input.height}{ink.TIMES}{geometry.model_input.width}",
        f"grid {geometry.grid.height}{ink.TIMES}{geometry.grid.width} of {model.patch} px patches",
        *(part for part in parts if part),
    ]
    return sheet_of(style, said, RANDOM if model.random_weights else "")


def sheet_of(style: DrawStyle, said: Sequence[str], warning: str = "") -> Sheet:
    """Empty pages with these words at the foot, below a warning of which the beginning must fit.

    Raises:
        UsageError: The figure is too narrow for readable text.
    """
    if style.width < WIDTH_MIN:
        raise UsageError(
            f"a figure {style.width:g} inches wide cannot hold readable text",
            f"choose a width of {WIDTH_MIN:g} inches or more",
        )
    lines = ink.wrapped([ink.printable(part) for part in said], style.width - 2 * MARGIN)
    if ink.text_width(warning, bold=True) > style.width - 2 * MARGIN:
        warning = warning.split(":", maxsplit=1)[0]
    return Sheet(style, lines, warning)


def statistics_words(model: ModelInfo) -> tuple[str, ...]:
    """That mean and standard deviation of the pixels were assumed, where nothing states them."""
    return ("mean and std assumed",) if model.statistics_assumed else ()


def layer_words(layer: int, model: ModelInfo) -> str:
    """The layer and from where it is counted."""
    return f"layer {layer} of 0{ink.TO}{model.depth - 1}"


def query_words(query: Query) -> str:
    """Whose attention is shown."""
    return "attention of the CLS token" if query is Query.CLS else "mean attention of all patches"


def prefix_words(prefix: FloatArray, model: ModelInfo) -> str:
    """The mean share of attention on tokens that are no patches: CLS and registers.

    prefix: (..., P) raw weights, the class token (and a distillation token) first.
    """
    if not prefix.shape[-1]:
        return ""
    mass = np.asarray(prefix, np.float64).reshape(-1, prefix.shape[-1]).mean(axis=0)  # (P,)
    said = []
    if model.has_cls:
        said.append(f"{ink.share(float(mass[0]))} on CLS")
    others = mass.size - int(model.has_cls) - model.registers
    if others > 0:
        first = int(model.has_cls)
        said.append(f"{ink.share(float(mass[first : first + others].sum()))} on distillation")
    if model.registers:
        words = "1 register" if model.registers == 1 else f"{model.registers} registers"
        said.append(f"{ink.share(float(mass[-model.registers :].sum()))} on {words}")
    return "not drawn: " + ", ".join(said)


def entropy_words(tokens: int, heads: int = 1) -> str:
    """What H is, and its value for even attention. heads: over how many H is a mean."""
    what = "H: mean entropy of the heads" if heads > 1 else "H: entropy"
    return f"{what} in nats, at most ln {tokens} = {np.log(tokens):.2f}"
