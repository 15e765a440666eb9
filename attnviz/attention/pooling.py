"""Attention pooling: how the latent queries of a pooling head read a model's output tokens.

SigLIP and others have no CLS token: learned latent queries attend to the tokens after the last norm
(Lee et al. 2019, "Set Transformer", PMA; Zhai et al. 2022, "Scaling Vision Transformers", MAP). The
weights are the softmax of the queries and keys that the pooling itself computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnviz.attention.arrays import layout_of
from attnviz.attention.capture import AttentionCall, AttentionModel, module_attention
from attnviz.errors import AttentionError

if TYPE_CHECKING:
    from attnviz.attention.arrays import TokenLayout


def pooling_weights(model: AttentionModel, batch: Tensor) -> Tensor:
    """Attention of every latent query to all tokens, per head: (B, M, H, N) float32, rows sum to 1.

    M latent queries; tokens that the pooling does not read have weight 0.

    Raises:
        AttentionError: The attention breaks an invariant, or reads other tokens than the model's.
    """
    layout = layout_of(model, batch)
    with torch.inference_mode():
        tokens = model.run(batch)
        call = pooling_call(model, tokens)
        index = torch.arange(call.query.shape[-2], device=batch.device)
        weights = call.rows(index).transpose(1, 2)  # B, M, H, K
        return _of_all_tokens(weights, layout)


def pooling_call(model: AttentionModel, tokens: Tensor) -> AttentionCall:
    """The attention of the pooling over the tokens (B, N, width) that a pass returns."""
    return module_attention(
        model.attention_pool, lambda: model.pool(tokens), model.info.depth, model.info.name
    )


def read_weights(model: AttentionModel, weights: Tensor) -> Tensor:
    """With what weight each token is read: (B, N), the mean over heads and latent queries.

    weights: as ``pooling_weights`` gives them. Where the pooled output is that of the first latent
    query alone, the others do not count.
    """
    pool: Any = model.attention_pool
    read = weights[:, :1] if pool.pool == "token" else weights
    return read.mean(dim=(1, 2))


def _of_all_tokens(weights: Tensor, layout: TokenLayout) -> Tensor:
    missing = layout.tokens - weights.shape[-1]
    if missing not in (0, layout.prefix):
        raise AttentionError(
            f"the pooling reads {weights.shape[-1]} tokens, expected {layout.tokens}, or the "
            f"{layout.patches} patches"
        )
    return torch.nn.functional.pad(weights, (missing, 0))
