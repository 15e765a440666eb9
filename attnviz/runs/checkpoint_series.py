"""From the maps of single checkpoints to their evolution, and its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.domain import EvolutionMaps, HeadsMaps, LayersMaps, Rows
from attnviz.domain.mass_mask import cell_numbers, mass_mask, on_pixels
from attnviz.domain.row_statistics import highest
from attnviz.runs.jaccard import jaccard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import BoolArray, FitGeometry, FloatArray
    from attnviz.runs.checkpoint_names import CheckpointSeries


def join(
    maps: Sequence[HeadsMaps | LayersMaps],
    series: CheckpointSeries,
    geometry: FitGeometry,
    mask: BoolArray | None,
    threshold: float,
) -> EvolutionMaps:
    """The maps of all checkpoints together.

    mask: (height, width) bool of the original image. threshold: the share of the patches'
    attention that a mass mask holds.
    """
    first = maps[0]
    of_layers = isinstance(first, LayersMaps)
    attention, prefix, entropy = map(
        np.stack, zip(*map(_rows, maps), strict=True)
    )  # (C, R, gh, gw), (C, R, P), (C, R)
    return EvolutionMaps(
        attention=attention,
        prefix=prefix,
        entropy=entropy,
        jaccard=None if mask is None else _jaccard(attention, geometry, mask, threshold),
        rows=Rows.LAYERS if of_layers else Rows.HEADS,
        indices=first.layers if isinstance(first, LayersMaps) else first.heads,
        heads=first.heads,
        layer=None if isinstance(first, LayersMaps) else first.layer,
        names=series.names,
        steps=series.steps,
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
    """One row for each checkpoint and head (or layer): weights are shares of 1, entropy in nats."""
    index_name = maps.rows.value.removesuffix("s")
    return tuple(
        {
            "checkpoint": name,
            index_name: index,
            **highest(maps.attention[c, r]),
            "mean": float(maps.attention[c, r].mean()),
            "entropy": float(maps.entropy[c, r]),
            "prefix_mass": float(maps.prefix[c, r].sum()),
            **({} if maps.jaccard is None else {"jaccard": float(maps.jaccard[c, r])}),
        }
        for c, name in enumerate(maps.names)
        for r, index in enumerate(maps.indices)
    )
