"""One vector a patch: queries, keys or values of a layer with the heads joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnviz.attention.arrays import as_array, layout_of
from attnviz.attention.capture import NOT_FINITE_HINT, AttentionCall, AttentionModel, capture
from attnviz.domain import Part
from attnviz.errors import AttentionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnviz.domain import FloatArray


def joined_vectors(
    model: AttentionModel, batch: Tensor, layer: int, part: Part
) -> list[FloatArray]:
    """The patches' vectors (n, H * d) of a layer, for each image of a (B, 3, h, w) batch.

    layer: from 0.

    Raises:
        AttentionError: A vector is not finite.
    """
    return joined_layers(model, batch, (layer,), part)[0]


def joined_layers(
    model: AttentionModel, batch: Tensor, layers: Sequence[int], part: Part
) -> list[list[FloatArray]]:
    """The same of several layers, in rising order: by layer, then by image.

    They are those that the model hands to attention, after its own norms and rotary
    embedding, and the heads stand side by side as the model's projection makes them.

    Raises:
        AttentionError: A vector is not finite.
    """
    prefix = layout_of(model, batch).prefix
    joined: list[list[FloatArray]] = []

    def handle(call: AttentionCall) -> None:
        if call.layer in layers:
            joined.append(joined_patches(call, part, prefix))

    capture(model, batch, layers[-1], handle)
    return joined


def joined_patches(call: AttentionCall, part: Part, prefix: int) -> list[FloatArray]:
    """As ``joined_vectors``, of the attention of one layer. prefix: tokens before the patches."""
    tensor = {Part.QUERY: call.query, Part.KEY: call.key, Part.VALUE: call.value}[part]
    vectors = as_array(tensor[:, :, prefix:].transpose(1, 2).flatten(2))  # B, n, H * d
    if not np.isfinite(vectors).all():
        raise AttentionError(
            f"queries, keys or values of layer {call.layer} are not finite", NOT_FINITE_HINT
        )
    return list(vectors)
