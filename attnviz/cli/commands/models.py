"""``attnviz models``."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.models.catalogue import MODELS, cached

if TYPE_CHECKING:
    from rich.table import Table

    from attnviz.models.catalogue import ModelSpec


def models(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON record a line, instead of the table.")
    ] = False,
) -> int:
    """The models known by name, their sizes and licences, and which weights are here already.

    Patch, native size in pixels; layers, heads and width of the transformer; register tokens; and
    whether the weights are in the local cache. Any other plain ViT of timm works too, under its
    timm name.

    Example: attnviz models --json
    """
    if as_json:
        for spec in MODELS.values():
            typer.echo(json.dumps({**dataclasses.asdict(spec), "cached": cached(spec)}))
        return 0
    from rich.console import Console

    # A pipe has no width; only a terminal may fold the table.
    Console(highlight=False, width=None if sys.stdout.isatty() else 200).print(_table())
    return 0


def _table() -> Table:
    """The catalogue, a row a model, at most 80 characters wide."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("model", no_wrap=True)
    for name in ("patch", "width", "layers", "heads", "regs", "size", "params"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("licence")
    table.add_column("cached")
    for spec in MODELS.values():
        table.add_row(*_row(spec))
    return table


def _row(spec: ModelSpec) -> list[str]:
    numbers = (spec.patch, spec.width, spec.depth, spec.heads, spec.registers, spec.native_size)
    return [
        spec.name,
        *map(str, numbers),
        f"{spec.parameters / 1e6:.{0 if spec.parameters > 1e7 else 1}f} M",
        spec.licence.removesuffix(" License"),
        "yes" if cached(spec) else "no",
    ]
