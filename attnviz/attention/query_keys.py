"""The queries and keys of whole layers, for code that computes attention from them elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from attnviz.attention.arrays import TokenLayout, as_array, layout_of
from attnviz.attention.capture import AttentionCall, AttentionModel, capture
from attnviz.attention.choose import choose_layers
from attnviz.attention.relative_bias import relative_bias
from attnviz.domain import QueryKeys, RelativeBias
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
        UnsupportedModelError: A layer adds a mask to its logits that is not a bias of relative
            positions.
        AttentionError: The first or the last row of a layer breaks an invariant.
    """
    chosen = choose_layers(model.info, layers)
    queries: list[FloatArray] = []
    keys: list[FloatArray] = []
    biases: list[RelativeBias | None] = []
    layout = layout_of(model, batch)

    def handle(call: AttentionCall) -> None:
        if call.layer not in chosen:
            return
        biases.append(_bias_of(call, layout, model.info.name))
        call.rows(torch.tensor([0, call.query.shape[-2] - 1], device=call.query.device))
        queries.append(as_array(call.query[0].float() * call.scale))  # H, N, d
        keys.append(as_array(call.key[0]))  # H, N, d

    capture(model, batch, chosen[-1], handle)
    return QueryKeys(np.stack(queries), np.stack(keys), chosen, tuple(biases))


def _bias_of(call: AttentionCall, layout: TokenLayout, name: str) -> RelativeBias | None:
    if call.mask is None:
        return None
    heads, tokens = call.query.shape[1:3]
    mask = call.mask_of(slice(None))
    bias = None
    if mask is not None and mask.dtype != torch.bool:
        bias = relative_bias(mask[0].float().expand(heads, tokens, tokens), layout)
    if bias is None:
        raise UnsupportedModelError(
            f"{name}: layer {call.layer} adds a mask to its attention logits",
            "an explorer page holds queries, keys and biases of relative positions only; use "
            "`attnviz patch` for this model",
        )
    return bias
