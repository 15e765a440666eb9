"""The arrays of a result by the names under which they are saved; docs/shapes.md lists them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.domain import (
    EvolutionMaps,
    FeaturesMaps,
    HeadsMaps,
    LayersMaps,
    MapKind,
    MatrixMaps,
    Part,
    PatchMaps,
    QkvMaps,
    RelevanceMaps,
    RolloutMaps,
    ScoreMaps,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from attnviz.domain import ComparedRow, Maps

    Arrays = dict[str, NDArray[Any]]


def arrays_of(maps: Maps) -> Arrays:  # noqa: C901 - one case a kind of maps
    """Raw values, never scaled for display, with the indices that say what they belong to.

    heads    attention (H, gh, gw), prefix (H, P), entropy (H,), layer (), heads (H,)
    layers   attention (L, H, gh, gw), prefix (L, H, P), entropy (L, H), layers (L,), heads (H,)
    rollout  rollout (gh, gw), prefix (P,), last (gh, gw), depths (K,), at_depth (K, gh, gw),
             at_depth_prefix (K, P), heads (H,)
    patch    attention (Q, H, gh, gw), prefix (Q, H, P), entropy (Q, H), cells (Q, 2), layer (),
             heads (H,)
    score    score, cls_term, patch_term (gh, gw), kept (gh, gw) bool, layer (), heads (H,)
    relevance  relevance (gh, gw), prefix (P,), value (), heads (H,)

    features tokens (N, D), norm (gh, gw), prefix_norm (P,), components (gh, gw, 3), explained (3,),
             similarity (Q, gh, gw), cells (Q, 2), layer () where one was named; with a foreground
             also foreground (gh, gw) bool, first (gh, gw)
    matrix   logits, attention (H, N, N) where they are held, token_entropy (H, N),
             to_cls (H, gh, gw) with a class token, layer (), heads (H,)
    qkv      of each part shown, here query: query (H, N, d), query_norm (H, N),
             query_pca (H, gh, gw, 3), query_explained (H, 3), and over all heads joined
             query_pca_all (gh, gw, 3), query_explained_all (3,); layer (), heads (H,)

    ``distance`` is there for heads (H,) and layers (L, H) where it was computed; with it, heads
    also has what else takes the whole matrix: to_cls (H, gh, gw), token_entropy (H, N).
    """
    arrays: Arrays
    if isinstance(maps, FeaturesMaps):
        return _features(maps)
    match maps:
        case HeadsMaps():
            arrays = {**_rows(maps), "layer": np.array(maps.layer), **_distance(maps)}
            if maps.to_cls is not None:
                arrays["to_cls"] = maps.to_cls
            if maps.token_entropy is not None:
                arrays["token_entropy"] = maps.token_entropy
        case LayersMaps():
            arrays = {**_rows(maps), "layers": _indices(maps.layers), **_distance(maps)}
        case PatchMaps():
            arrays = {**_rows(maps), "cells": maps.cells, "layer": np.array(maps.layer)}
        case RolloutMaps():
            arrays = {
                "rollout": maps.rollout,
                "prefix": maps.prefix,
                "last": maps.last,
                "depths": _indices(maps.depths),
                "at_depth": maps.at_depth,
                "at_depth_prefix": maps.at_depth_prefix,
            }
        case ScoreMaps():
            arrays = {
                "score": maps.score,
                "cls_term": maps.cls_term,
                "patch_term": maps.patch_term,
                "kept": maps.kept,
                "layer": np.array(maps.layer),
            }
        case RelevanceMaps():
            arrays = {
                "relevance": maps.relevance,
                "prefix": maps.prefix,
                "value": np.array(maps.value, np.float32),
            }
        case MatrixMaps():
            arrays = _matrix(maps)
        case QkvMaps():
            arrays = _qkv(maps)
    return {**arrays, "heads": _indices(maps.heads)}


def compared_arrays(rows: Sequence[ComparedRow]) -> Arrays:
    """Every map of a comparison, as its own command has it: ``row0_mean``, ``row0_patch_3_7``, ...

    (gh, gw), for heads (H, gh, gw), for components (gh, gw, 3). A map that an image does not have
    is left out.
    """
    arrays: Arrays = {}
    for place, row in enumerate(rows):
        for name, shown in row.maps.items():
            if shown.reason is not None:
                continue
            # Signs, points and px stay, so that no two maps meet under one name.
            key = f"row{place}_{re.sub('[:@,]', '_', name)}"
            many = shown.is_colours or shown.kind is MapKind.HEADS
            arrays[key] = shown.values if many else shown.values[0]
            if shown.foreground is not None:
                arrays[f"{key}_mask"] = shown.foreground
    return arrays


def _features(maps: FeaturesMaps) -> Arrays:
    arrays: Arrays = {
        "tokens": maps.tokens,
        "norm": maps.norm,
        "prefix_norm": maps.prefix_norm,
        "components": maps.components,
        "explained": maps.explained,
        "similarity": maps.similarity,
        "cells": maps.cells,
    }
    if maps.layer is not None:
        arrays["layer"] = np.array(maps.layer)
    if maps.foreground is not None and maps.first is not None:
        arrays |= {"foreground": maps.foreground, "first": maps.first}
    return arrays


def _rows(maps: HeadsMaps | LayersMaps | PatchMaps) -> Arrays:
    return {"attention": maps.attention, "prefix": maps.prefix, "entropy": maps.entropy}


def _distance(maps: HeadsMaps | LayersMaps) -> Arrays:
    return {} if maps.distance is None else {"distance": maps.distance}


def _matrix(maps: MatrixMaps) -> Arrays:
    arrays: Arrays = {"token_entropy": maps.token_entropy, "layer": np.array(maps.layer)}
    if maps.logits is not None and maps.attention is not None:
        arrays |= {"logits": maps.logits, "attention": maps.attention}
    if maps.to_cls is not None:
        arrays["to_cls"] = maps.to_cls
    return arrays


_NAMES = {Part.QUERY: "query", Part.KEY: "key", Part.VALUE: "value"}


def _qkv(maps: QkvMaps) -> Arrays:
    arrays: Arrays = {"layer": np.array(maps.layer)}
    for place, part in enumerate(maps.parts):
        name = _NAMES[part]
        arrays |= {
            name: maps.vectors[place],
            f"{name}_norm": maps.norms[place],
            f"{name}_pca": maps.components[place],
            f"{name}_explained": maps.explained[place],
            f"{name}_pca_all": maps.joint_components[place],
            f"{name}_explained_all": maps.joint_explained[place],
        }
    return arrays


def _indices(values: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(values), np.int64)


def evolution_arrays(maps: EvolutionMaps) -> Arrays:
    """The arrays of ``evolve``: C checkpoints, R rows, which are heads of a layer or layers.

    attention (C, R, gh, gw), prefix (C, R, P), entropy (C, R), jaccard (C, R) with a mask,
    checkpoints (C,) text, steps (C,) where all have numbers, heads (H,); heads (R,) and layer ()
    or layers (R,).
    """
    arrays: Arrays = {
        "attention": maps.attention,
        "prefix": maps.prefix,
        "entropy": maps.entropy,
        "checkpoints": np.array(maps.names),
        "heads": _indices(maps.heads),
    }
    if maps.jaccard is not None:
        arrays["jaccard"] = maps.jaccard
    if maps.numbers is not None:
        arrays["steps"] = _indices(maps.numbers)
    if maps.layer is None:
        return arrays | {"layers": _indices(maps.indices)}
    return arrays | {"layer": np.array(maps.layer)}


def score_rows(maps: ScoreMaps) -> tuple[dict[str, Any], ...]:
    """The token scores as rows of a table, patch by patch in reading order."""
    return tuple(
        {
            "row": int(row),
            "column": int(column),
            "score": float(score),
            "cls_term": float(maps.cls_term[row, column]),
            "patch_term": float(maps.patch_term[row, column]),
            "kept": int(maps.kept[row, column]),
        }
        for (row, column), score in np.ndenumerate(maps.score)
    )
