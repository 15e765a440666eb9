"""The forms in which option values are written: layers, heads, cells, sizes, limits and more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnviz.domain import parse
from attnviz.domain.options import FLAG, Form, choice, choices, number
from attnviz.storage import path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BANDS",
    "BATCH_SIZE",
    "CELLS",
    "CHANNELS",
    "DEVICE",
    "FLAG",
    "INDEX",
    "INDICES",
    "INDICES_OR_ALL",
    "LIMITS",
    "MODEL_ARGS",
    "OPTIONAL_COUNT",
    "PAIRS",
    "PATH",
    "POINTS",
    "POSITIVE_CHANNELS",
    "QUERY",
    "RANGE",
    "SHARD",
    "SHARE",
    "SHARES",
    "SIZE",
    "TEXT",
    "WIDTH",
    "WORKERS",
    "choice",
    "choices",
    "number",
]


def _joined(values: Sequence[Any] | None) -> str | None:
    return ",".join(map(repr, values)) if values else None


TEXT = Form()
PATH = Form(read=lambda _option, text: path_of(text), write=str, metavar="PATH")
"""A path here or in a store: a file, a folder, ``s3://bucket/folder``."""

INDEX = Form(read=parse.parse_index, metavar="N")
INDICES = Form(read=parse.optional_indices, write=_joined, metavar="LIST")
INDICES_OR_ALL = Form(
    read=lambda option, text: parse.optional_indices(option, text) or "all",
    write=lambda values: values if values == "all" else _joined(values),
    metavar="LIST|all",
)
"""As ``INDICES``, where None is another choice than ``all``."""

CELLS = Form(
    read=lambda _option, texts: parse.parse_cells(texts),
    write=lambda cells: [f"{row},{column}" for row, column in cells],
    metavar="ROW,COLUMN",
    repeated=True,
)
POINTS = Form(
    read=lambda _option, texts: parse.parse_points(texts),
    write=lambda points: [f"{x!r},{y!r}" for x, y in points],
    metavar="X,Y",
    repeated=True,
)
PAIRS = Form(read=parse.parse_pairs, metavar="N|all")
SHARE = number("0..1", above=0, most=1)
SHARES = Form(
    read=parse.parse_shares,
    write=lambda value: _joined(value) if isinstance(value, tuple) else value,
    metavar="0..1[,...]",
)
"""A number for one share, a tuple for several."""

SIZE = Form(read=lambda _option, text: parse.parse_size(text), write=str, metavar="S|HxW|original")
WIDTH = Form(read=lambda _option, text: parse.parse_width(text), metavar="column|page|INCHES")
LIMITS = Form(read=lambda _option, text: parse.parse_limits(text), write=_joined, metavar="MIN,MAX")
CHANNELS = Form(read=parse.parse_channels, write=_joined, metavar="R,G,B")
BANDS = Form(read=lambda _option, text: parse.parse_bands(text), write=_joined, metavar="R,G,B")
RANGE = Form(
    read=lambda _option, text: parse.parse_range(text),
    write=lambda values: values if values == "auto" else _joined(values),
    metavar="MIN,MAX|auto",
)
POSITIVE_CHANNELS = Form(
    read=lambda option, text: parse.parse_channels(option, text, positive=True),
    write=_joined,
    metavar="R,G,B",
)
QUERY = Form(read=parse.parse_query, write=str, metavar="cls|mean|pool|r1..rR")
DEVICE = Form(read=lambda _option, text: parse.parse_device(text), metavar="auto|cpu|cuda[:N]|mps")
MODEL_ARGS = Form(
    read=lambda _option, texts: parse.parse_model_args(texts),
    write=lambda sizes: [f"{name}={value}" for name, value in sizes.items()],
    metavar="NAME=N",
    repeated=True,
)
SHARD = Form(read=lambda _option, text: parse.parse_shard(text), write=str, metavar="I/N")


def _count(*, least: int) -> Form:
    """A whole number, or ``auto`` for None."""

    def read(option: str, text: str) -> int | None:
        return parse.parse_count(option, text, least=least)

    return Form(read=read, metavar="auto|N", unset="auto")


OPTIONAL_COUNT = _count(least=1)
BATCH_SIZE = Form(
    read=lambda option, text: parse.parse_count(option, text, least=1) or 0,
    metavar="auto|N",
    unset="auto",
)
"""A whole number, or ``auto`` for 0."""

WORKERS = _count(least=0)
