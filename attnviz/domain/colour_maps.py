"""The tables of the usual colour maps, so that pixels are coloured without importing matplotlib."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnviz.domain.arrays import ByteArray

_NAMES = (
    *("inferno", "magma", "plasma", "viridis", "cividis"),
    *("gray", "hot", "turbo", "jet", "coolwarm", "RdBu"),
)
PACKAGED = (*_NAMES, *(f"{name}_r" for name in _NAMES))
"""Colour maps of matplotlib whose tables come with the package (``tools/write_colour_maps.py``)."""


@lru_cache
def colour_table(name: str) -> ByteArray:
    """A colour map of ``PACKAGED`` as (256, 3) uint8, read-only. KeyError for any other name."""
    import numpy as np

    with files("attnviz").joinpath("data", "colour_maps.npz").open("rb") as stream:
        table: ByteArray = np.load(stream, allow_pickle=False)[name]
    table.flags.writeable = False
    return table
