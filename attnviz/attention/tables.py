"""The numbers of a result as rows of plain values, for the terminal, CSV and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnviz.attention.stats import entropy, focus, uniform_entropy
from attnviz.domain import (
    FeaturesMaps,
    HeadsMaps,
    LayersMaps,
    Maps,
    MatrixMaps,
    PatchMaps,
    QkvMaps,
    RelevanceMaps,
    RolloutMaps,
    ScoreMaps,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import FloatArray

Row = dict[str, Any]


def table(maps: Maps) -> tuple[Row, ...]:  # noqa: PLR0911 - one a kind of maps
    """Rows of a result: per head, per layer and head, per depth, per query and head, or one.

    Of relevance, ``value`` is the target, a logit or a cosine; of contributions to it, ``patches``
    and ``prefix`` are the sums.
    Of ``features``, the norms: a row for every prefix token, and one for the patches together.
    Of queries, keys and values: a row for every part and head, and one for all heads joined.

    Weights are shares of 1; entropy is in nats, entropy_share is entropy / ln N, distance is in
    input pixels, focus is max / mean over the patches. ``prefix_mass`` is the weight of CLS,
    distillation and register tokens together.
    """
    match maps:
        case HeadsMaps():
            distance = maps.distance
            rows = _per_map(maps.attention, maps.prefix, maps.entropy, distance)
            return tuple(
                {"layer": maps.layer, "head": head, **row}
                for head, row in zip(maps.heads, rows, strict=True)
            )
        case LayersMaps():
            return tuple(
                {"layer": layer, "head": head, **row}
                for place, layer in enumerate(maps.layers)
                for head, row in zip(
                    maps.heads,
                    _per_map(
                        maps.attention[place],
                        maps.prefix[place],
                        maps.entropy[place],
                        None if maps.distance is None else maps.distance[place],
                    ),
                    strict=True,
                )
            )
        case PatchMaps():
            return tuple(
                {"row": int(row), "column": int(column), "head": head, **numbers}
                for place, (row, column) in enumerate(maps.cells)
                for head, numbers in zip(
                    maps.heads,
                    _per_map(maps.attention[place], maps.prefix[place], maps.entropy[place], None),
                    strict=True,
                )
            )
        case RolloutMaps():
            rows_at_depth = np.concatenate(
                [maps.at_depth_prefix, maps.at_depth.reshape(len(maps.depths), -1)], axis=1
            )
            rows = _per_map(maps.at_depth, maps.at_depth_prefix, entropy(rows_at_depth), None)
            return tuple(
                {"depth": depth, **row} for depth, row in zip(maps.depths, rows, strict=True)
            )
        case ScoreMaps():
            quantiles = np.quantile(maps.score, (0, 0.25, 0.5, 0.75, 1))
            names = ("min", "q25", "median", "q75", "max")
            return (
                {
                    "layer": maps.layer,
                    "kept": int(maps.kept.sum()),
                    "patches": int(maps.kept.size),
                    **{name: float(q) for name, q in zip(names, quantiles, strict=True)},
                    "mean": float(maps.score.mean()),
                },
            )
        case RelevanceMaps():
            return (_relevance_row(maps),)
        case FeaturesMaps():
            return _token_norms(maps)
        case MatrixMaps():
            return _matrix_rows(maps)
        case QkvMaps():
            return _qkv_rows(maps)


def _relevance_row(maps: RelevanceMaps) -> Row:
    values, drawn, rest = maps.relevance, float(maps.relevance.sum()), float(maps.prefix.sum())
    row: Row = {"method": maps.method.value}
    if maps.like is None:
        row |= {"target": f"class {maps.class_index}", "value": maps.value}
        row["probability"] = maps.probability
    else:
        row |= {"target": f"like {maps.like.name}", "value": maps.value}
    if maps.signed:
        row |= {"min": float(values.min()), "max": float(values.max())}
        return row | {"patches": drawn, "prefix": rest}
    row |= {"max": float(values.max()), "mean": float(values.mean())}
    row["focus"] = float(focus(values[None])[0])
    row["prefix_mass"] = rest / (drawn + rest) if drawn + rest > 0 else 0.0
    return row


def _token_norms(maps: FeaturesMaps) -> tuple[Row, ...]:
    """A row for every prefix token, in the model's order, and one for the patches together."""
    outliers = maps.outliers
    prefix = zip(maps.prefix_names, maps.prefix_norm, strict=True)
    norms = [(name, np.array([norm])) for name, norm in prefix]
    rows = []
    for name, values in (*norms, ("patches", maps.norm)):
        row: Row = {
            "token": name,
            "norm_min": float(values.min()),
            "norm_median": float(np.median(values)),
            "norm_max": float(values.max()),
        }
        if maps.outlier_threshold is not None and outliers is not None:
            row["outliers"] = int((values > maps.outlier_threshold).sum())
        rows.append(row)
    return tuple(rows)


def _matrix_rows(maps: MatrixMaps) -> tuple[Row, ...]:
    """One row a head: entropy over the tokens' rows, the logits' range, the mean map to CLS."""
    limit = uniform_entropy(maps.tokens)
    rows: list[Row] = []
    for place, head in enumerate(maps.heads):
        entropies = maps.token_entropy[place]
        row: Row = {
            "layer": maps.layer,
            "head": head,
            "entropy_mean": float(entropies.mean()),
            "entropy_share": float(entropies.mean()) / limit if limit else 0.0,
            "entropy_min": float(entropies.min()),
            "entropy_max": float(entropies.max()),
            "logit_min": float(maps.logit_range[place, 0]),
            "logit_max": float(maps.logit_range[place, 1]),
        }
        if maps.to_cls is not None:
            row["to_cls_mean"] = float(maps.to_cls[place].mean())
        rows.append(row)
    return tuple(rows)


def _qkv_rows(maps: QkvMaps) -> tuple[Row, ...]:
    """One row a part and head, then one for the part's heads joined: shape, mean, deviation."""
    rows: list[Row] = []
    for place, part in enumerate(maps.parts):
        vectors = maps.vectors[place].astype(np.float64)  # H, N, d
        lengths = np.sqrt((vectors**2).sum(axis=2))  # H, N
        count, tokens, width = vectors.shape
        for head, values, norms, explained in zip(
            maps.heads, vectors, lengths, maps.explained[place], strict=True
        ):
            rows.append(_vector_row(part, head, (tokens, width), values, norms, explained))
        joined = np.sqrt((lengths**2).sum(axis=0))  # N
        shape, ratios = (tokens, count * width), maps.joint_explained[place]
        rows.append(_vector_row(part, "all", shape, vectors, joined, ratios))
    return tuple(rows)


def _vector_row(
    part: str,
    head: int | Literal["all"],
    shape: tuple[int, int],
    values: NDArray[np.float64],
    norms: NDArray[np.float64],
    explained: FloatArray,
) -> Row:
    return {
        "part": str(part),
        # Text in every row: a column of a table has one type.
        "head": str(head),
        "tokens": shape[0],
        "width": shape[1],
        "mean": float(values.mean()),
        "std": float(values.std()),
        "norm_mean": float(norms.mean()),
        "norm_max": float(norms.max()),
        "explained": float(explained.sum()),
    }


def _per_map(
    attention: FloatArray, prefix: FloatArray, entropies: FloatArray, distance: FloatArray | None
) -> list[Row]:
    """Rows of maps (K, gh, gw) with their prefix weights (K, P) and entropies (K,)."""
    tokens = prefix.shape[-1] + attention.shape[-2] * attention.shape[-1]
    limit = uniform_entropy(tokens)
    sharpness = focus(attention)
    rows: list[Row] = []
    for place, values in enumerate(attention):
        row: Row = {
            "max": float(values.max()),
            "mean": float(values.mean()),
            "entropy": float(entropies[place]),
            "entropy_share": float(entropies[place]) / limit if limit else 0.0,
            "focus": float(sharpness[place]),
            "prefix_mass": float(prefix[place].sum()),
        }
        if distance is not None:
            row["distance"] = float(distance[place])
        rows.append(row)
    return rows
