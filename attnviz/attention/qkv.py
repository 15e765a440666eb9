"""Queries, keys and values of a layer: the vectors, their norms, their principal components."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from attnviz.attention.arrays import TokenLayout, as_array, head_index, layout_of
from attnviz.attention.capture import NOT_FINITE_HINT, AttentionCall, AttentionModel, capture
from attnviz.attention.choose import choose_heads, choose_layer
from attnviz.attention.pca import principal_components
from attnviz.domain import Part, QkvMaps
from attnviz.domain.kinds import QkvRequest
from attnviz.errors import AttentionError

if TYPE_CHECKING:
    from attnviz.domain import FloatArray


def qkv_maps(model: AttentionModel, batch: Tensor, request: QkvRequest) -> list[QkvMaps]:
    """Queries, keys and values of a layer, for each image of a (B, 3, h, w) batch.

    Raises:
        UsageError: Layer or head out of range.
        AttentionError: A vector is not finite.
    """
    info = model.info
    layer = choose_layer(info, request.layer)
    heads = choose_heads(info, request.heads)
    layout = layout_of(model, batch)
    maps: list[QkvMaps] = []

    def handle(call: AttentionCall) -> None:
        if call.layer != layer:
            return
        tensors = {Part.QUERY: call.query, Part.KEY: call.key, Part.VALUE: call.value}
        index = head_index(heads, batch.device)
        for image in range(batch.shape[0]):
            vectors = np.stack(
                [as_array(tensors[part][image, index]) for part in request.parts]
            )  # S, H, N, d
            if not np.isfinite(vectors).all():
                raise AttentionError(
                    f"queries, keys or values of layer {layer} are not finite", NOT_FINITE_HINT
                )
            maps.append(_maps(vectors, layout, layer, request.parts, heads))

    capture(model, batch, layer, handle)
    return maps


def _maps(
    vectors: FloatArray,
    layout: TokenLayout,
    layer: int,
    parts: tuple[Part, ...],
    heads: tuple[int, ...],
) -> QkvMaps:
    grid = layout.grid
    patches = vectors[:, :, layout.prefix :]  # S, H, n, d
    heads_pca = [[principal_components(tokens) for tokens in part] for part in patches]
    # Heads side by side, as the model's own projection makes them.
    joined = patches.transpose(0, 2, 1, 3).reshape(len(parts), patches.shape[2], -1)  # S, n, H*d
    joint = [principal_components(tokens) for tokens in joined]
    return QkvMaps(
        vectors=vectors,
        norms=np.linalg.norm(vectors.astype(np.float64), axis=3).astype(np.float32),
        components=np.stack(
            [[scores.reshape(*grid, 3) for scores, _ in part] for part in heads_pca]
        ),
        explained=np.array([[ratios for _, ratios in part] for part in heads_pca], np.float32),
        joint_components=np.stack([scores.reshape(*grid, 3) for scores, _ in joint]),
        joint_explained=np.array([ratios for _, ratios in joint], np.float32),
        layer=layer,
        parts=parts,
        heads=heads,
    )
