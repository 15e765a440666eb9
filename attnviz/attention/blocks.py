"""Whole attention matrices, a few rows at a time.

A matrix of N x N per head does not fit (6.4 GB a layer for ViT-S/8 at 1024 pixels), so whoever
needs all of its rows sees them in blocks: some rows of all heads after the others. A block is small
enough to stay in cache from the exponential to the last use of it, and large enough that a batched
product gives every core whole heads to work on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.attention.capture import AttentionCall, add_mask, broken_row, check_output

CPU_BLOCK_ROWS = 256
"""Rows of every head in a block on a CPU, at most: with fewer, the products and their many starts
took longer at 785 and at 3,601 tokens."""

BLOCK_FLOATS = 1 << 26
"""Floats in a block, at most (256 MiB)."""

SAFE_TOTALS = (1e-6, 1e30)
"""Sums of e^logit over a row for which its maximum may stay in: nothing has overflowed, and what
has underflowed is less than 1e-25 of the row."""

LOWEST = -104.0
"""e^x is 0 in float32 from here down."""


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows ``rows`` of all heads of one image: attention is ``weights`` / ``totals``.

    ``weights`` (H, R, N) float32: e^logit, up to a factor a row. ``totals`` (H, R, 1): their sums.
    ``logits`` (H, R, N): ln of the weights, only when asked for. All are work buffers: they hold
    their values until the next block is asked for, and may be written to until then.
    """

    rows: slice
    weights: Tensor
    totals: Tensor
    logits: Tensor | None

    def attention(self) -> Tensor:
        """Attention (H, R, N), made in place of the weights."""
        self.weights.div_(self.totals)
        self.totals.fill_(1.0)
        return self.weights


def rows_each(call: AttentionCall) -> int:
    """How many rows of one image make a block: the same for all blocks but the last."""
    _, heads, tokens, _ = call.query.shape
    most = most_rows(heads, tokens, call.query.device)
    return math.ceil(tokens / math.ceil(tokens / most))


def most_rows(heads: int, tokens: int, device: torch.device) -> int:
    """How many rows a block of a matrix may have on a device."""
    most = max(1, min(tokens, BLOCK_FLOATS // (tokens * heads)))
    return min(most, CPU_BLOCK_ROWS) if device.type == "cpu" else most


def spread_rows(call: AttentionCall) -> Tensor:
    """Four rows (4,) spread over the tokens, to compare with the model's own kernel.

    A wrong matrix shows in any row; numbers that are not finite are looked for in every row.
    """
    tokens = call.query.shape[-2]
    return torch.linspace(0, tokens - 1, 4, device=call.query.device).long()


def row_blocks(
    call: AttentionCall,
    *,
    first_row: int = 0,
    output: Tensor | None = None,
    logits: bool = False,
) -> Iterator[RowBlock]:
    """All rows of one image (``call`` with B = 1) from ``first_row`` on, in order.

    With ``output`` (H, N, d) each block's attention times V is written there on the way, so that
    the model can go on with it and its fused kernel need not run as well.

    Raises:
        AttentionError: A row is broken, or the output is not the model's own.
    """
    tokens = call.query.shape[-2]
    sampled = spread_rows(call)
    if output is None:
        call.rows(sampled)
    count = rows_each(call)
    maker = _Maker(call, count, logits=logits)
    for start in range(first_row, tokens, count):
        block = maker.block(slice(start, min(start + count, tokens)))
        if output is not None:
            product = block.weights @ maker.value  # H, R, d
            torch.div(product, block.totals, out=output[:, block.rows])
        yield block
    if output is not None:
        check_output(output[:, sampled].float(), call.fused_rows(sampled)[0], call)


class _Maker:
    """One image's queries, keys and values, and the buffers in which its blocks are made."""

    def __init__(self, call: AttentionCall, rows: int, *, logits: bool) -> None:
        _, heads, tokens, _ = call.query.shape
        self.call = call
        # Leaving the row's maximum in saves two of the passes over N x N values. It is tried until
        # it was not harmless.
        self.unshifted = call.query.device.type == "cpu" and call.mask is None
        self.query = call.query[0].float()  # H, N, d
        self.key = call.key[0].float().transpose(-2, -1)  # H, d, N
        self.value = call.value[0].float()  # H, N, d
        size = heads * rows * tokens
        self.logits = self.query.new_empty(size)
        self.keep_logits = logits
        self.weights = self.query.new_empty(size) if logits else self.logits

    def block(self, rows: slice) -> RowBlock:
        """The block of some rows, in place of the one before."""
        query = self.query[:, rows]
        shape = (query.shape[0], query.shape[1], self.key.shape[-1])
        logits, weights = (
            buffer[: math.prod(shape)].view(shape) for buffer in (self.logits, self.weights)
        )
        totals = self._exponentials(query, rows, logits, weights)
        return RowBlock(rows, weights, totals, logits if self.keep_logits else None)

    def _exponentials(self, query: Tensor, rows: slice, logits: Tensor, weights: Tensor) -> Tensor:
        """Fill the logits and weights (H, R, N) of a block; returns the sums of the weights."""
        self._multiply(query, logits)
        if self.unshifted:
            totals = torch.exp(logits, out=weights).sum(dim=-1, keepdim=True)
            low, high = torch.aminmax(totals)
            if SAFE_TOTALS[0] < low and high < SAFE_TOTALS[1]:
                return totals
            self.unshifted = False
            self._multiply(query, logits)
        mask = self.call.mask_of(rows)
        if mask is not None:
            logits.copy_(add_mask(logits, mask[0]))
        logits.sub_(logits.amax(dim=-1, keepdim=True))
        totals = torch.exp(logits, out=weights).sum(dim=-1, keepdim=True)
        low, high = torch.aminmax(totals)
        if not (low > 0 and high < math.inf):  # also true for NaN
            raise broken_row(self.call.layer, "holds numbers that are not finite")
        if mask is not None and self.keep_logits:
            logits.clamp_min_(LOWEST)  # of a hidden token: 0 * -inf is no number
        return totals

    def _multiply(self, query: Tensor, logits: Tensor) -> None:
        torch.baddbmm(logits, query, self.key, beta=0, alpha=self.call.scale, out=logits)


def patch_mean_row(call: AttentionCall, prefix: int) -> Tensor:
    """Mean over the patch queries of their rows, per head of one image: (H, N) float32."""
    _, heads, tokens, _ = call.query.shape
    total = torch.zeros(heads, tokens, device=call.query.device)
    for block in row_blocks(call, first_row=prefix):
        total += row_sum(block)
    return total / (tokens - prefix)


def row_sum(block: RowBlock, skip: int = 0) -> Tensor:
    """Sum of a block's rows of attention from the ``skip``-th on: (H, N)."""
    shares = block.totals[:, skip:].reciprocal().transpose(-2, -1)  # H, 1, R
    return (shares @ block.weights[:, skip:])[:, 0]
