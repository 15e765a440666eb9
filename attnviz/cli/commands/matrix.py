"""``attnviz matrix``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from attnviz.cli.options import LayerOption, SharedOptions
from attnviz.cli.parse import optional_indices, parse_index
from attnviz.cli.run import run
from attnviz.domain import Norm
from attnviz.domain.requests import MatrixRequest


@dataclass(frozen=True, kw_only=True)
class MatrixOptions(SharedOptions):
    """Options of ``matrix``."""

    layer: LayerOption = "-1"
    norm: Annotated[
        Norm, typer.Option(help="Colours after softmax: by the logarithm of the weight, or linear.")
    ] = Norm.LOG


def matrix(options: MatrixOptions) -> int:
    """The whole attention matrix of a layer, before and after softmax.

    The mean over heads, the entropy of every token as a curve and as a map, the patches' attention
    to CLS, and single heads: those that --heads names, or four from the lowest to the highest
    entropy. Large matrices are drawn as means over blocks of tokens. --save-data keeps them whole.

    Example: attnviz matrix photo.jpg --layer 8 --heads 0,3
    """
    return run(matrix_request(options), options)


def matrix_request(options: MatrixOptions) -> MatrixRequest:
    """What the options of ``matrix`` ask for."""
    return MatrixRequest(
        layer=parse_index("--layer", options.layer),
        heads=optional_indices("--heads", options.heads),
        norm=options.norm,
        whole=options.save_data,
    )
