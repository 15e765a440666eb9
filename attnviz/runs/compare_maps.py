"""Which command computes a map that a comparison shows, and which of its arrays that is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from attnviz.domain import (
    ComparedMap,
    DiscoverMaps,
    DiscoverMethod,
    FeaturesMaps,
    HeadsMaps,
    MapKind,
    MatchMaps,
    MatrixMaps,
    Part,
    PatchMaps,
    QkvMaps,
    RelevanceMaps,
    RolloutMaps,
    ScoreMaps,
)
from attnviz.domain.comparison import NO_LAYER
from attnviz.domain.kinds import (
    DiscoverRequest,
    FeaturesRequest,
    HeadsRequest,
    MatrixRequest,
    PatchRequest,
    QkvRequest,
    RolloutRequest,
    ScoreRequest,
)
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.domain import FloatArray, IntArray, Maps, ModelInfo
    from attnviz.domain.comparison import CompareRequest, MapSpec
    from attnviz.domain.kinds import CommandRequest, RelevanceRequest


_PARTS = {
    MapKind.QUERY_PCA: Part.QUERY,
    MapKind.KEY_PCA: Part.KEY,
    MapKind.VALUE_PCA: Part.VALUE,
    MapKind.QUERY_NORM: Part.QUERY,
    MapKind.KEY_NORM: Part.KEY,
    MapKind.VALUE_NORM: Part.VALUE,
}
_NORMS = (MapKind.QUERY_NORM, MapKind.KEY_NORM, MapKind.VALUE_NORM)


class Asked(Protocol):
    """What decides how a map is computed: a layer, and what relevance is of."""

    @property
    def layer(self) -> int | None: ...
    @property
    def relevance(self) -> RelevanceRequest | None: ...


def command_of(shown: MapSpec, request: Asked) -> CommandRequest:
    """The command, with its own defaults, whose result contains the map.

    Without a layer it is the last one of attention, and for tokens the model's output.
    """
    if shown.kind is MapKind.RELEVANCE and request.relevance is not None:
        return request.relevance
    if shown.kind is MapKind.MATCH and request.match is not None:
        return replace(request.match, layer=request.layer if shown.layer is None else shown.layer)
    layer = request.layer if shown.layer is None else shown.layer
    last = -1 if layer is None else layer
    cells = () if shown.cell is None else (shown.cell,)
    points = () if shown.point is None else (shown.point,)
    commands: dict[MapKind, CommandRequest] = {
        MapKind.PATCH: PatchRequest(layer=last, cells=cells, points=points),
        MapKind.ROLLOUT: RolloutRequest(),
        MapKind.SCORE: ScoreRequest(layer=last),
        MapKind.DISCOVER: DiscoverRequest(layer=last),
        MapKind.LOST: DiscoverRequest(DiscoverMethod.LOST, last),
        MapKind.SPECTRAL: DiscoverRequest(DiscoverMethod.SPECTRAL, last),
        MapKind.PCA: FeaturesRequest(layer=layer),
        MapKind.FOREGROUND: FeaturesRequest(layer=layer, foreground=True),
        MapKind.NORM: FeaturesRequest(layer=layer),
        MapKind.COSINE: FeaturesRequest(layer=layer, cells=cells, points=points),
        MapKind.ENTROPY: MatrixRequest(layer=last),
        MapKind.TO_CLS: MatrixRequest(layer=last),
        # All three parts, whichever is shown: one pass computes them together.
        **dict.fromkeys(_PARTS, QkvRequest(layer=last)),
    }
    return commands.get(shown.kind, HeadsRequest(layer=last, distance=False))


def resolved(info: ModelInfo, request: CompareRequest) -> tuple[MapSpec, ...]:
    """The maps, those of a layer for each of the layers, with heads counted from 0; each once.

    Raises:
        UsageError: The model has no such head, or no CLS token to attend to.
    """
    specs = []
    for each in request.shown:
        head = each.head
        if head is not None and not -info.heads <= head < info.heads:
            raise UsageError(
                f"--show {each}: {info.name} has heads 0 to {info.heads - 1}",
                "compare models with different numbers of heads by mean, rollout or heads",
            )
        if each.kind is MapKind.TO_CLS and not info.has_cls:
            raise UsageError(
                f"--show {each}: {info.name} has no CLS token", "leave it out, or show entropy"
            )
        spec = each if head is None else replace(each, head=head % info.heads)
        layers = () if each.kind in NO_LAYER else request.layers or ()
        specs += [replace(spec, layer=layer) for layer in layers] or [spec]
    return tuple(dict.fromkeys(specs))


def compared(shown: MapSpec, maps: Maps) -> ComparedMap:
    """The map out of what its command computed: the same array that ``--save-data`` writes.

    Only means and maxima over heads, and the norms of the vectors of all heads, are computed here.
    """
    kind = shown.kind
    match maps:
        case HeadsMaps():
            result = ComparedMap(kind, _of_heads(shown, maps), layer=maps.layer)
        case PatchMaps():
            values = _one(maps.attention[0].mean(axis=0))
            result = ComparedMap(kind, values, layer=maps.layer, cell=_first(maps.cells))
        case RolloutMaps():
            result = ComparedMap(kind, _one(maps.rollout), rollout=maps.options)
        case ScoreMaps():
            result = ComparedMap(kind, _one(maps.score), layer=maps.layer)
        case DiscoverMaps() | MatchMaps():
            result = _of_keys(kind, maps)
        case FeaturesMaps():
            result = _of_features(kind, maps)
        case MatrixMaps():
            result = ComparedMap(kind, _of_matrix(kind, maps), layer=maps.layer)
        case QkvMaps():
            result = ComparedMap(kind, _of_vectors(shown, maps), layer=maps.layer)
        case RelevanceMaps():
            result = ComparedMap(kind, _one(maps.relevance), caption=_target(maps))
        case _:
            raise TypeError(f"{type(maps).__name__} holds no {kind}")
    return result


def _of_heads(shown: MapSpec, maps: HeadsMaps) -> FloatArray:
    if shown.kind is MapKind.MEAN:
        return _one(maps.attention.mean(axis=0))
    if shown.kind is MapKind.MAX:
        return _one(maps.attention.max(axis=0))
    return maps.attention if shown.head is None else maps.attention[[shown.head]]


def _of_features(kind: MapKind, maps: FeaturesMaps) -> ComparedMap:
    if kind is MapKind.NORM:
        return ComparedMap(kind, _one(maps.norm), layer=maps.layer)
    if kind is MapKind.COSINE:
        return ComparedMap(kind, maps.similarity, layer=maps.layer, cell=_first(maps.cells))
    return ComparedMap(kind, maps.components, maps.foreground, maps.layer)


def _of_keys(kind: MapKind, maps: DiscoverMaps | MatchMaps) -> ComparedMap:
    if isinstance(maps, DiscoverMaps):
        return ComparedMap(kind, _one(maps.object_map), maps.mask, maps.layer)
    caption = f"nearest: the highest cosine of keys with a patch of {maps.like.name}"
    return ComparedMap(kind, _one(maps.best), layer=maps.layer, caption=caption)


def _of_vectors(shown: MapSpec, maps: QkvMaps) -> FloatArray:
    part = maps.parts.index(_PARTS[shown.kind])
    if shown.kind not in _NORMS:
        joint: FloatArray = maps.joint_components[part]
        components: FloatArray = maps.components[part]
        return joint if shown.head is None else components[shown.head]
    if shown.head is None:
        return _one(maps.joint_norms[part])
    norms: FloatArray = maps.norms[part][shown.head, maps.prefix :]
    return _one(norms.reshape(maps.joint_components.shape[1:3]))


def _target(maps: RelevanceMaps) -> str:
    target = f"class {maps.class_index}" if maps.like is None else f"like {maps.like.name}"
    return f"relevance: {maps.method.value}, {target}"


def _of_matrix(kind: MapKind, maps: MatrixMaps) -> FloatArray:
    if kind is MapKind.TO_CLS and maps.to_cls is not None:
        return _one(maps.to_cls.mean(axis=0))
    entropy = maps.token_entropy.mean(axis=0)[maps.prefix :]
    return _one(entropy.reshape(maps.grid))


def _first(cells: IntArray) -> tuple[int, int]:
    row, column = cells[0].tolist()
    return row, column


def _one(values: FloatArray) -> FloatArray:
    return np.ascontiguousarray(values[None])
