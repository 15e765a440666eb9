"""``attnviz qkv``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer

from attnviz.cli.options import LayerOption, SharedOptions
from attnviz.cli.parse import optional_indices, parse_index
from attnviz.cli.run import run
from attnviz.domain import Part
from attnviz.domain.requests import QkvRequest


@dataclass(frozen=True, kw_only=True)
class QkvOptions(SharedOptions):
    """Options of ``qkv``."""

    layer: LayerOption = "-1"
    part: Annotated[
        list[Part],
        typer.Option(help="Queries, keys or values; repeatable.", show_default="all three"),
    ] = field(default_factory=lambda: list(Part))


def qkv(options: QkvOptions) -> int:
    """Queries, keys and values of a layer, as the model hands them to attention.

    A page each: the first three principal components of the patches as colours on the picture, of
    all heads joined and of each head, the lengths of the vectors, and the matrices token by width.

    Example: attnviz qkv photo.jpg --layer 8 --part k
    """
    return run(qkv_request(options), options)


def qkv_request(options: QkvOptions) -> QkvRequest:
    """What the options of ``qkv`` ask for."""
    return QkvRequest(
        layer=parse_index("--layer", options.layer),
        heads=optional_indices("--heads", options.heads),
        parts=tuple(options.part),
    )
