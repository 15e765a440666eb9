"""Whole attention matrices, a few rows at a time.

A matrix of N x N per head does not fit (6.4 GB a layer for ViT-S/8 at 1024 pixels), so whoever
needs all of its rows sees them as blocks. On a CPU a block is one head and few rows, which stays
in cache between the softmax and what is done with it; on a GPU it is all heads and many rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.attention.capture import AttentionCall, add_mask, check_output

CPU_BLOCK_FLOATS = 1 << 20
"""Floats in a block on a CPU (4 MiB): the best of the sizes tried from 785 to 3,601 tokens; smaller
blocks slow the matrix products, larger ones leave the cache."""

GPU_BLOCK_FLOATS = 1 << 26
"""Floats in a block on a GPU (256 MiB)."""


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows ``rows`` of heads ``heads`` of one image: logits and attention (h, R, N) float32.

    Both tensors are work buffers: they hold their values until the next block is asked for.
    """

    heads: slice
    rows: slice
    logits: Tensor
    attention: Tensor
    masked: bool


def row_blocks(
    call: AttentionCall, *, first_row: int = 0, output: Tensor | None = None
) -> Iterator[RowBlock]:
    """All rows of all heads of one image (``call`` with B = 1): rows outside, heads inside.

    With ``output`` (H, N, d) each block's attention times V is written there on the way, so that
    the model can go on with it and its fused kernel need not run as well.

    Raises:
        AttentionError: A row is broken, or the output is not the model's own.
    """
    _, heads, tokens, _ = call.query.shape
    on_cpu = call.query.device.type == "cpu"
    heads_each = 1 if on_cpu else heads
    limit = CPU_BLOCK_FLOATS if on_cpu else GPU_BLOCK_FLOATS
    rows_each = max(16, min(tokens, limit // (tokens * heads_each)))
    buffers = torch.empty((2, heads_each * rows_each * tokens), device=call.query.device)
    query = call.query[0].float() * call.scale  # H, N, d
    key = call.key[0].float().transpose(-2, -1).contiguous()  # H, d, N
    value = call.value[0].float().contiguous()  # H, N, d
    for start in range(first_row, tokens, rows_each):
        rows = slice(start, min(start + rows_each, tokens))
        count = rows.stop - rows.start
        for head in range(0, heads, heads_each):
            chosen = slice(head, head + heads_each)
            logits, attention = (
                buffer[: heads_each * count * tokens].view(heads_each, count, tokens)
                for buffer in buffers
            )
            torch.matmul(query[chosen, rows], key[chosen], out=logits)  # h, R, N
            mask = call.mask_of(rows, chosen)
            if mask is not None:
                logits.copy_(add_mask(logits, mask[0]))
            torch.softmax(logits, dim=-1, out=attention)
            if output is not None:
                _times_value(attention, value[chosen], output[chosen, rows])
            yield RowBlock(chosen, rows, logits, attention, mask is not None)
    _check_sample(call, output)


def patch_mean_row(call: AttentionCall, prefix: int) -> Tensor:
    """Mean over the patch queries of their rows, per head of one image: (H, N) float32."""
    _, heads, tokens, _ = call.query.shape
    total = torch.zeros(heads, tokens, device=call.query.device)
    for block in row_blocks(call, first_row=prefix):
        total[block.heads] += block.attention.sum(dim=1)
    return total / (tokens - prefix)


def _times_value(attention: Tensor, value: Tensor, out: Tensor) -> None:
    """Write attention (h, R, N) times V (h, N, d) to ``out``, in its own number type."""
    if out.dtype == torch.float32 and attention.shape[0] == 1:
        torch.mm(attention[0], value[0], out=out[0])
    else:
        out.copy_(attention @ value)


def _check_sample(call: AttentionCall, output: Tensor | None) -> None:
    """The invariants on four rows spread over the tokens: a wrong matrix shows in any row."""
    tokens = call.query.shape[-2]
    index = torch.linspace(0, tokens - 1, 4, device=call.query.device).long()
    attention = call.rows(index)
    if output is not None:
        own = attention @ call.value.float()
        check_output(output[:, index].float(), own[0], call.value, call.layer)
