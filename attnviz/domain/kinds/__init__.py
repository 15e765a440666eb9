"""The kinds of figures, one file each, and the table of them all.

A new kind is a file here and a line in ``KINDS``, its numbers in ``attnviz.attention`` and its
drawing in ``attnviz.figures``; CONTRIBUTING.md has the steps.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from attnviz.domain.kinds.discover import DISCOVER, DiscoverMaps, DiscoverRequest
from attnviz.domain.kinds.faithful import FAITHFUL, FaithfulMaps, FaithfulRequest
from attnviz.domain.kinds.features import FEATURES, FeaturesMaps, FeaturesRequest
from attnviz.domain.kinds.heads import HEADS, HeadsMaps, HeadsRequest
from attnviz.domain.kinds.kind import CommandRequest, FigureSource, Kind, Maps, Sidecar
from attnviz.domain.kinds.layers import LAYERS, LayersMaps, LayersRequest
from attnviz.domain.kinds.match import MATCH, MatchMaps, MatchRequest
from attnviz.domain.kinds.matrix import MATRIX, MatrixMaps, MatrixRequest
from attnviz.domain.kinds.patch import PATCH, PatchMaps, PatchRequest
from attnviz.domain.kinds.qkv import QKV, QkvMaps, QkvRequest
from attnviz.domain.kinds.relevance import RELEVANCE, RelevanceMaps, RelevanceRequest
from attnviz.domain.kinds.rollout import ROLLOUT, RolloutMaps, RolloutOptions, RolloutRequest
from attnviz.domain.kinds.score import SCORE, ScoreMaps, ScoreRequest
from attnviz.domain.near_names import did_you_mean
from attnviz.errors import UsageError

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
            DISCOVER,
            MATCH,
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


def kind_called(name: str) -> Kind:
    """The kind of a name.

    Raises:
        UsageError: No kind has it.
    """
    if name not in KINDS:
        hint = did_you_mean(name, KINDS) or f"one of {', '.join(KINDS)}"
        raise UsageError(f"no figure is called {name!r}", hint)
    return KINDS[name]


def request_of(command: CommandRequest | str) -> CommandRequest:
    """A request as it is, or that of a kind of figure by name, with its defaults.

    Raises:
        UsageError: No kind has that name.
    """
    return kind_called(command).request() if isinstance(command, str) else command


__all__ = [
    "FIGURE_COMMANDS",
    "KINDS",
    "CommandRequest",
    "DiscoverMaps",
    "DiscoverRequest",
    "FaithfulMaps",
    "FaithfulRequest",
    "FeaturesMaps",
    "FeaturesRequest",
    "FigureSource",
    "HeadsMaps",
    "HeadsRequest",
    "Kind",
    "LayersMaps",
    "LayersRequest",
    "Maps",
    "MatchMaps",
    "MatchRequest",
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
    "kind_called",
    "kind_of",
    "request_of",
]
