"""From the maps of single checkpoints to their evolution: names, order, numbers and the table."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnviz.domain import EvolutionMaps, HeadsMaps, LayersMaps, Rows
from attnviz.domain.mass_mask import cell_numbers, mass_mask, on_pixels
from attnviz.runs.jaccard import jaccard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from attnviz.domain import BoolArray, FitGeometry, FloatArray

_NUMBERED = re.compile(r"^(.*?)[-_. ]*?0*(\d+)$", re.DOTALL)


class Named(NamedTuple):
    """Checkpoints in the order of the figure. steps: their numbers, or None."""

    paths: tuple[Path, ...]
    names: tuple[str, ...]
    steps: tuple[int, ...] | None


def name_checkpoints(paths: Sequence[Path]) -> Named:
    """What checkpoints are called, and their order.

    ``step00500.pth`` and ``step01000.pth`` are step 500 and step 1000, and in this order however
    they were given. Names that are not one word and different numbers stay, in the order given;
    files of one name take their folder's before it.
    """
    stems = [path.name if path.is_dir() else path.stem for path in paths]
    count = Counter(stems)
    names = [
        f"{path.absolute().parent.name}/{stem}" if count[stem] > 1 else stem
        for path, stem in zip(paths, stems, strict=True)
    ]
    found = [match for name in names if (match := _NUMBERED.match(name))]
    numbers = [int(match[2]) for match in found]
    words = {match[1] for match in found}
    if len(found) < len(names) or len(words) > 1 or len(set(numbers)) < len(numbers):
        return Named(tuple(paths), tuple(names), None)
    word = words.pop()
    order = sorted(range(len(names)), key=numbers.__getitem__)
    return Named(
        tuple(paths[place] for place in order),
        tuple(f"{word} {numbers[place]}".strip() for place in order),
        tuple(numbers[place] for place in order),
    )


def join(
    maps: Sequence[HeadsMaps | LayersMaps],
    named: Named,
    geometry: FitGeometry,
    mask: BoolArray | None,
    threshold: float,
) -> EvolutionMaps:
    """The maps of all checkpoints together.

    mask: (height, width) bool of the original picture. threshold: the share of the patches'
    attention that a mass mask holds.
    """
    first = maps[0]
    of_layers = isinstance(first, LayersMaps)
    found = [_rows(each) for each in maps]
    attention, prefix, entropy = (
        np.stack([rows[place] for rows in found]) for place in range(3)
    )  # C, R, ...
    return EvolutionMaps(
        attention=attention,
        prefix=prefix,
        entropy=entropy,
        jaccard=None if mask is None else _jaccard(attention, geometry, mask, threshold),
        rows=Rows.LAYERS if of_layers else Rows.HEADS,
        indices=first.layers if isinstance(first, LayersMaps) else first.heads,
        heads=first.heads,
        layer=None if isinstance(first, LayersMaps) else first.layer,
        names=named.names,
        steps=named.steps,
        query=first.query,
    )


def _rows(maps: HeadsMaps | LayersMaps) -> tuple[FloatArray, FloatArray, FloatArray]:
    if isinstance(maps, HeadsMaps):
        return maps.attention, maps.prefix, maps.entropy
    return maps.attention.mean(axis=1), maps.prefix.mean(axis=1), maps.entropy.mean(axis=1)


def _jaccard(
    attention: FloatArray, geometry: FitGeometry, mask: BoolArray, threshold: float
) -> FloatArray:
    cells = cell_numbers(geometry)
    return np.array(
        [
            [jaccard(on_pixels(mass_mask(values, threshold), cells), mask) for values in rows]
            for rows in attention
        ],
        np.float32,
    )


def table(maps: EvolutionMaps) -> tuple[dict[str, Any], ...]:
    """One row a checkpoint and head (or layer): weights are shares of 1, entropy is in nats."""
    kind = maps.rows.value.removesuffix("s")
    return tuple(
        {
            "checkpoint": name,
            kind: index,
            "max": float(maps.attention[c, r].max()),
            "mean": float(maps.attention[c, r].mean()),
            "entropy": float(maps.entropy[c, r]),
            "prefix_mass": float(maps.prefix[c, r].sum()),
            **({} if maps.jaccard is None else {"jaccard": float(maps.jaccard[c, r])}),
        }
        for c, name in enumerate(maps.names)
        for r, index in enumerate(maps.indices)
    )
