"""Whole attention matrices in order, for what needs them as they are: logits, then attention.

``blocks.each_strip`` is for what only adds up: it runs on every core and leaves rows unnormalised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.attention.blocks import CPU_BLOCK_FLOATS, GPU_BLOCK_FLOATS
from attnviz.attention.capture import AttentionCall, add_mask


@dataclass(frozen=True, eq=False)
class MatrixRows:
    """Rows ``rows`` of heads ``heads`` of one image: logits and attention (h, R, N) float32.

    Both tensors are work buffers: they hold their values until the next rows are asked for.
    """

    heads: slice
    rows: slice
    logits: Tensor
    attention: Tensor


def matrix_rows(call: AttentionCall) -> Iterator[MatrixRows]:
    """All rows of all heads of one image (``call`` with B = 1): rows outside, heads inside.

    Raises:
        AttentionError: A row is broken, or attention times V is not the model's own output.
    """
    _, heads, tokens, _ = call.query.shape
    on_cpu = call.query.device.type == "cpu"
    heads_each = 1 if on_cpu else heads
    limit = CPU_BLOCK_FLOATS if on_cpu else GPU_BLOCK_FLOATS
    rows_each = max(16, min(tokens, limit // (tokens * heads_each)))
    query = call.query[0].float() * call.scale  # H, N, d
    key = call.key[0].float().transpose(-2, -1)  # H, d, N
    # The invariants on four rows spread over the tokens: a wrong matrix shows in any row.
    call.rows(torch.linspace(0, tokens - 1, 4, device=query.device).long())
    for start in range(0, tokens, rows_each):
        rows = slice(start, min(start + rows_each, tokens))
        for head in range(0, heads, heads_each):
            chosen = slice(head, head + heads_each)
            logits = query[chosen, rows] @ key[chosen]  # h, R, N
            mask = call.mask_of(rows, chosen)
            if mask is not None:
                logits = add_mask(logits, mask[0])
            yield MatrixRows(chosen, rows, logits, logits.softmax(dim=-1))
