"""The kinds of figures, one file each, and the table of them all.

A new kind is a file here and a line in ``KINDS``, its numbers in ``attnviz.attention`` and its
drawing in ``attnviz.figures``; CONTRIBUTING.md has the steps.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from attnviz.domain.kinds.faithful import FAITHFUL, FaithfulMaps, FaithfulRequest
from attnviz.domain.kinds.features import FEATURES, FeaturesMaps, FeaturesRequest
from attnviz.domain.kinds.heads import HEADS, HeadsMaps, HeadsRequest
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps, Sidecar
from attnviz.domain.kinds.layers import LAYERS, LayersMaps, LayersRequest
from attnviz.domain.kinds.matrix import MATRIX, MatrixMaps, MatrixRequest
from attnviz.domain.kinds.patch import PATCH, PatchMaps, PatchRequest
from attnviz.domain.kinds.qkv import QKV, QkvMaps, QkvRequest
from attnviz.domain.kinds.relevance import RELEVANCE, RelevanceMaps, RelevanceRequest
from attnviz.domain.kinds.rollout import ROLLOUT, RolloutMaps, RolloutOptions, RolloutRequest
from attnviz.domain.kinds.score import SCORE, ScoreMaps, ScoreRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            HEADS,
            LAYERS,
            ROLLOUT,
            PATCH,
            SCORE,
            RELEVANCE,
            FEATURES,
            MATRIX,
            QKV,
            FAITHFUL,
        )
    }
)

FIGURE_COMMANDS = (*KINDS, "compare", "evolve", "explore")
"""The commands that write figures, whose name stands in the names of their files."""

_BY_REQUEST = {kind.request: kind for kind in KINDS.values()}
_BY_MAPS = {kind.maps: kind for kind in KINDS.values()}


def kind_of(thing: CommandRequest | Maps) -> Kind:
    """The kind that a request asks for, or that maps are of."""
    if isinstance(thing, CommandRequest):
        return _BY_REQUEST[type(thing)]
    return _BY_MAPS[type(thing)]


__all__ = [
    "FIGURE_COMMANDS",
    "KINDS",
    "CommandRequest",
    "FaithfulMaps",
    "FaithfulRequest",
    "FeaturesMaps",
    "FeaturesRequest",
    "HeadsMaps",
    "HeadsRequest",
    "Kind",
    "LayersMaps",
    "LayersRequest",
    "Maps",
    "MatrixMaps",
    "MatrixRequest",
    "PatchMaps",
    "PatchRequest",
    "QkvMaps",
    "QkvRequest",
    "RelevanceMaps",
    "RelevanceRequest",
    "RolloutMaps",
    "RolloutOptions",
    "RolloutRequest",
    "ScoreMaps",
    "ScoreRequest",
    "Sidecar",
    "kind_of",
]
