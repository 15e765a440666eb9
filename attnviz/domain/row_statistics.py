"""Numbers of attention rows in numpy: entropy, focus, and the table of some maps.

docs/definitions.md states them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from attnviz.domain.arrays import FloatArray
    from attnviz.domain.kinds.kind import Row


def entropy(rows: FloatArray) -> FloatArray:
    """Entropy in nats of rows (..., N) that sum to 1: (...), with 0 ln 0 = 0 and no epsilon.

    Between 0 (one token has all) and ln N (uniform).
    """
    values = rows.astype(np.float64)
    logs = np.log(values, out=np.zeros_like(values), where=values > 0)
    # Adding 0.0 turns the -0.0 of a one-hot row into 0.0.
    return np.asarray(-(values * logs).sum(axis=-1) + 0.0, dtype=np.float32)


def focus(patches: FloatArray) -> FloatArray:
    """Largest over mean weight of the patch tokens (..., gh, gw): (...), 1 when uniform."""
    flat = patches.reshape(*patches.shape[:-2], -1).astype(np.float64)
    mean = flat.mean(axis=-1)
    ratio = np.divide(flat.max(axis=-1), mean, out=np.ones_like(mean), where=mean > 0)
    return np.asarray(ratio, dtype=np.float32)


def highest(values: FloatArray) -> Row:
    """The highest value of maps (..., gh, gw), and where it is: the first in reading order."""
    row, column = np.unravel_index(values.argmax(), values.shape)[-2:]
    return {"max": float(values.max()), "max_row": int(row), "max_column": int(column)}


def uniform_entropy(tokens: int) -> float:
    """Natural log of N: the largest entropy that a row over ``tokens`` tokens can have, in nats."""
    return math.log(tokens)


def joined_rows(prefix: FloatArray, patches: FloatArray) -> FloatArray:
    """Whole rows (K, N) from their prefix part (K, P) and their maps (K, gh, gw)."""
    return np.concatenate([prefix, patches.reshape(len(patches), -1)], axis=1)


def map_rows(
    attention: FloatArray, prefix: FloatArray, entropies: FloatArray, distance: FloatArray | None
) -> list[Row]:
    """Table rows of maps (K, gh, gw), their prefix weights (K, P), entropies and distances (K,)."""
    tokens = prefix.shape[-1] + attention.shape[-2] * attention.shape[-1]
    limit = uniform_entropy(tokens)
    sharpness = focus(attention)
    rows: list[Row] = []
    for index, values in enumerate(attention):
        row: dict[str, Any] = {
            **highest(values),
            "mean": float(values.mean()),
            "entropy": float(entropies[index]),
            "entropy_share": float(entropies[index]) / limit if limit else 0.0,
            "focus": float(sharpness[index]),
            "prefix_mass": float(prefix[index].sum()),
        }
        if distance is not None:
            row["distance"] = float(distance[index])
        rows.append(row)
    return rows


def column_rows(attention: FloatArray, prefix: FloatArray, received: FloatArray) -> list[Row]:
    """Table rows of columns of the matrix: maps (K, gh, gw), prefix (K, P) and their sums (K,)."""
    sharpness = focus(attention)
    return [
        {
            **highest(values),
            "mean": float(values.mean()),
            "focus": float(sharpness[index]),
            "received": float(received[index]),
            "from_prefix": float(prefix[index].sum()),
        }
        for index, values in enumerate(attention)
    ]


def sink_ratio(received: FloatArray) -> FloatArray:
    """Largest over median attention received (..., N) by a token: (...), 1 when all are equal."""
    values = received.astype(np.float64)
    median = np.median(values, axis=-1)
    ratio = np.divide(
        values.max(axis=-1), median, out=np.full_like(median, np.inf), where=median > 0
    )
    return np.asarray(ratio, np.float32)


def sink_rows(received: FloatArray) -> list[Row]:
    """Table rows of the attention received (K, N): the sink's token, and how far it stands out."""
    tokens = received.argmax(axis=-1).tolist()
    ratios = sink_ratio(received).tolist()
    return [
        {"sink_token": token, "sink_ratio": ratio}
        for token, ratio in zip(tokens, ratios, strict=True)
    ]
