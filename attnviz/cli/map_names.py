"""The maps that ``compare --show`` names, from text to values."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from attnviz.domain import MapKind
from attnviz.domain.comparison import HEAD_KINDS, PLACED_KINDS, MapSpec
from attnviz.domain.near_names import did_you_mean
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN = re.compile(
    r"([a-z-]+)(?::([+-]?\d{1,6})|@([+-]?\d{1,6}),([+-]?\d{1,6})"
    r"|@([+-]?\d{1,9}(?:\.\d+)?),([+-]?\d{1,9}(?:\.\d+)?)px)?",
    re.ASCII,
)
_HEAD_HINT = "a single head is head:3, or of q, k, v such as k-norm:3"
_HINT = "write patch@3,7 (row, column) or patch@240,120px (x, y of the image)"


def parse_maps(texts: Sequence[str], option: str = "--show") -> tuple[MapSpec, ...]:
    """The maps of a comparison, each once: ``mean,head:3,patch@3,7``, ``cosine@240,120px``.

    option: what an error names.

    Raises:
        UsageError: No such map, or a head that is missing, or a head or patch that is not accepted.
    """
    # A comma before a number belongs to the position of a patch.
    parts = (part for text in texts for part in re.split(r",(?! *[-+\d])", text))
    return tuple(dict.fromkeys(_map_spec(part.strip(), option) for part in parts))


def parse_panels(text: str) -> tuple[MapSpec, ...]:
    """The maps of ``--panel``; errors as ``parse_maps``."""
    specs = parse_maps([text], "--panel")
    for spec in specs:
        if spec.needs_patch:
            raise UsageError(f"--panel: '{spec}' needs a patch", _HINT)
    return specs


def at_places(
    specs: Sequence[MapSpec],
    cells: Sequence[tuple[int, int]],
    points: Sequence[tuple[float, float]],
) -> tuple[MapSpec, ...]:
    """The maps with their patches: those of a patch that name none, once for every place.

    cells: (row, column) in the grid; points: (x, y) of the original image.

    Raises:
        UsageError: A map without a patch where no place is given, or places that no map takes.
    """
    placed = [
        *(partial(replace, cell=cell) for cell in cells),
        *(partial(replace, point=point) for point in points),
    ]
    made: list[MapSpec] = []
    waiting = [each for each in specs if each.needs_patch]
    for spec in specs:
        if spec.needs_patch and not placed:
            raise UsageError(f"--show: '{spec}' needs a patch", f"{_HINT}, or give --at or --xy")
        made += [place(spec) for place in placed] if spec.needs_patch else [spec]
    if placed and not waiting:
        raise UsageError(
            "--at and --xy need a map of a patch that names none", "add --show patch or cosine"
        )
    return tuple(dict.fromkeys(made))


def _map_spec(text: str, option: str) -> MapSpec:
    match = _SHOWN.fullmatch(text)
    name = re.split("[:@]", text)[0]
    if name not in set(MapKind):
        hint = did_you_mean(name, set(MapKind)) or f"one of {', '.join(MapKind)}"
        raise UsageError(f"{option}: no map is called {name!r}", hint)
    kind = MapKind(name)
    head, row, column, x, y = match.group(2, 3, 4, 5, 6) if match else (None,) * 5
    if (
        match is None
        or (head is None and kind is MapKind.HEAD)
        or (head is not None and kind not in HEAD_KINDS)
    ):
        hint = f"write {kind}:3" if kind is MapKind.HEAD else _HINT if head is None else _HEAD_HINT
        raise UsageError(f"{option}: {text!r} is not a map", hint)
    if (row is not None or x is not None) and kind not in PLACED_KINDS:
        raise UsageError(f"{option}: {text!r} takes no patch", _HINT)
    return MapSpec(
        kind,
        head=None if head is None else int(head),
        cell=None if row is None or column is None else (int(row), int(column)),
        point=None if x is None or y is None else (float(x), float(y)),
    )
