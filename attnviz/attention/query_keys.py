"""The queries and keys of whole layers, for code that computes attention from them elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from attnviz.attention.arrays import as_array
from attnviz.attention.capture import AttentionCall, AttentionModel, capture
from attnviz.attention.choose import choose_layers
from attnviz.domain import QueryKeys
from attnviz.errors import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnviz.domain import FloatArray


def query_keys(
    model: AttentionModel, batch: Tensor, layers: Sequence[int] | None = None
) -> QueryKeys:
    """The scaled queries and the keys of the chosen layers (None: all) of a (1, 3, h, w) batch.

    Raises:
        UsageError: A layer out of range.
        UnsupportedModelError: A layer adds a mask or bias to its logits, which queries and keys
            alone do not hold.
        AttentionError: The first or the last row of a layer breaks an invariant.
    """
    chosen = choose_layers(model.info, layers)
    queries: list[FloatArray] = []
    keys: list[FloatArray] = []

    def handle(call: AttentionCall) -> None:
        if call.layer not in chosen:
            return
        if call.mask is not None:
            raise UnsupportedModelError(
                f"{model.info.name}: layer {call.layer} adds a mask to its attention logits",
                "an explorer page holds queries and keys only; use `attnviz patch` for this model",
            )
        call.rows(torch.tensor([0, call.query.shape[-2] - 1], device=call.query.device))
        queries.append(as_array(call.query[0].float() * call.scale))  # H, N, d
        keys.append(as_array(call.key[0]))  # H, N, d

    capture(model, batch, chosen[-1], handle)
    return QueryKeys(np.stack(queries), np.stack(keys), chosen)
