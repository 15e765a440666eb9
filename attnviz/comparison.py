"""Which command computes a map that a comparison shows, and which of its arrays that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import (
    ComparedMap,
    FeaturesMaps,
    HeadsMaps,
    MapKind,
    PatchMaps,
    RolloutMaps,
    ScoreMaps,
)
from attnviz.errors import UsageError
from attnviz.requests import (
    FeaturesRequest,
    HeadsRequest,
    PatchRequest,
    RolloutRequest,
    ScoreRequest,
)

if TYPE_CHECKING:
    from attnviz.domain import FloatArray, Maps, ModelInfo
    from attnviz.requests import CommandRequest, ShownMap


def command_of(shown: ShownMap, layer: int | None) -> CommandRequest:
    """The command, with its own defaults, whose result holds the map.

    layer: None is the last one of attention, and for tokens the model's output.
    """
    last = -1 if layer is None else layer
    cells = () if shown.cell is None else (shown.cell,)
    points = () if shown.point is None else (shown.point,)
    commands: dict[MapKind, CommandRequest] = {
        MapKind.PATCH: PatchRequest(layer=last, cells=cells, points=points),
        MapKind.ROLLOUT: RolloutRequest(),
        MapKind.SCORE: ScoreRequest(layer=last),
        MapKind.PCA: FeaturesRequest(layer=layer),
        MapKind.FOREGROUND: FeaturesRequest(layer=layer, foreground=True),
        MapKind.NORM: FeaturesRequest(layer=layer),
        MapKind.COSINE: FeaturesRequest(layer=layer, cells=cells, points=points),
    }
    return commands.get(shown.kind, HeadsRequest(layer=last, distance=False))


def check_shown(info: ModelInfo, shown: ShownMap) -> None:
    """Raise UsageError where a model has no such head."""
    head = shown.head
    if head is not None and not -info.heads <= head < info.heads:
        raise UsageError(
            f"--show {shown}: {info.name} has heads 0 to {info.heads - 1}",
            "compare models by mean, rollout or heads where they have not the same heads",
        )


def compared(shown: ShownMap, maps: Maps) -> ComparedMap:
    """The map among what its command computed: the very array that ``--save-data`` writes.

    Only the means over heads, of ``mean`` and of ``patch``, are computed here.
    """
    kind = shown.kind
    foreground = None
    match maps:
        case HeadsMaps() if kind is MapKind.MEAN:
            values = _one(maps.attention.mean(axis=0))
        case HeadsMaps():
            heads = slice(None) if shown.head is None else [shown.head]
            values = maps.attention[heads]
        case PatchMaps():
            values = _one(maps.attention[0].mean(axis=0))
        case RolloutMaps():
            values = _one(maps.rollout)
        case ScoreMaps():
            values = _one(maps.score)
        case FeaturesMaps() if kind is MapKind.NORM:
            values = _one(maps.norm)
        case FeaturesMaps() if kind is MapKind.COSINE:
            values = maps.similarity
        case FeaturesMaps():
            values, foreground = maps.components, maps.foreground
        case _:
            raise TypeError(f"{type(maps).__name__} holds no {kind}")
    return ComparedMap(kind, values, foreground)


def _one(values: FloatArray) -> FloatArray:
    return np.ascontiguousarray(values[None])
