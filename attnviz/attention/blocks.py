"""Whole attention matrices, a few rows at a time.

A matrix of N x N per head does not fit into memory (6.4 GB a layer for ViT-S/8 at 1024 pixels), so
code that needs all of its rows gets them in blocks: some rows of all heads at a time. A block is
small enough to stay in cache from its first product to its last use, and large enough that a
batched product gives every core whole heads to work on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.attention.caches import cpu_caches
from attnviz.attention.capture import AttentionCall, add_mask, broken_row, check_output

CPU_BLOCK_ROWS = 160
"""Rows of every head in a block on a CPU, at most: more make products no faster, and with AVX-512
192 or more make them a third slower."""

CPU_LEAST_ROWS = 32
"""Rows of every head in a block on a CPU, at least: with fewer, products are slow in any cache."""

CACHE_SHARE = 4
"""A block fills at most one part in so many of the last cache; other data need the rest."""

UNKNOWN_CACHE = 16 << 20
"""Bytes of the last cache where the system does not report it."""

BLOCK_FLOATS = 1 << 26
"""Floats in a block on other devices, at most (256 MiB)."""

SAFE_TOTALS = (1e-6, 1e30)
"""Sums of e^logit over a row for which its maximum may stay in: nothing has overflowed, and what
has underflowed is less than 1e-25 of the row."""

LOWEST = -104.0
"""e^x is 0 in float32 from here down."""


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows ``rows`` of all heads of one image: attention is ``weights`` / ``totals``.

    ``weights`` (H, R, N) float32: e^logit, up to a factor per row. ``totals`` (H, R, 1): their
    sums. ``logits`` (H, R, N): ln of the weights, only on request. All are work buffers: they are
    valid until the next block is requested, and may be overwritten until then.
    """

    rows: slice
    weights: Tensor
    totals: Tensor
    logits: Tensor | None

    def attention(self) -> Tensor:
        """Attention (H, R, N), computed in place of the weights."""
        self.weights.div_(self.totals)
        self.totals.fill_(1.0)
        return self.weights


def rows_per_block(call: AttentionCall) -> int:
    """Rows of one image in a block: the same for all blocks but the last."""
    _, heads, tokens, _ = call.query.shape
    most = max_rows(heads, tokens, call.query.device)
    return math.ceil(tokens / math.ceil(tokens / most))


def max_rows(heads: int, tokens: int, device: torch.device) -> int:
    """Rows that a block of a matrix may have on a device."""
    if device.type != "cpu":
        return max(1, min(tokens, BLOCK_FLOATS // (tokens * heads)))
    floats = (cpu_caches().last or UNKNOWN_CACHE) // (4 * CACHE_SHARE)
    return min(tokens, CPU_BLOCK_ROWS, max(CPU_LEAST_ROWS, floats // (tokens * heads)))


def spread_rows(call: AttentionCall) -> Tensor:
    """Four rows (4,) spread over the tokens, to compare with the model's own kernel.

    A wrong matrix shows in any row; numbers that are not finite are checked in every row.
    """
    tokens = call.query.shape[-2]
    return torch.linspace(0, tokens - 1, 4, device=call.query.device).long()


RowSum = Callable[[Tensor, slice], Tensor]
"""From the weights (H, R, N) of some rows, and which rows they are, to their sums (H, R, 1)."""


def row_sums(weights: Tensor, _rows: slice) -> Tensor:
    """Sums of rows (H, R, N): (H, R, 1)."""
    return weights.sum(dim=-1, keepdim=True)


def row_blocks(
    call: AttentionCall,
    *,
    first_row: int = 0,
    output: Tensor | None = None,
    logits: bool = False,
    sum_rows: RowSum = row_sums,
) -> Iterator[RowBlock]:
    """All rows of one image (``call`` with B = 1) from ``first_row`` on, in order.

    With ``output`` (H, N, d) attention times V is written there on the way, so that the model can
    go on with it and its fused kernel need not run as well. ``sum_rows`` computes the totals of
    each block, for code that needs a product over the same values anyway; it may be called a second
    time for the same rows, and the last call counts.

    Raises:
        AttentionError: A row is broken, or the output is not the model's own.
    """
    tokens = call.query.shape[-2]
    sampled = spread_rows(call)
    if output is None:
        call.rows(sampled)
    count = rows_per_block(call)
    blocks = _Blocks(call, count, sum_rows, logits=logits)
    value = packed(call.value[0]) if output is not None else None  # H, N, d
    for start in range(first_row, tokens, count):
        block = blocks.compute(slice(start, min(start + count, tokens)))
        if output is not None and value is not None:
            product = block.weights @ value  # H, R, d
            torch.div(product, block.totals, out=output[:, block.rows])
        yield block
    if output is not None:
        check_output(output[:, sampled].float(), call.fused_rows(sampled)[0], call)


class _Blocks:
    """One image's queries and keys, and the buffers in which its blocks are computed."""

    def __init__(self, call: AttentionCall, rows: int, sum_rows: RowSum, *, logits: bool) -> None:
        _, heads, tokens, _ = call.query.shape
        self.call = call
        self.sum_rows = sum_rows
        # Leaving the row's maximum in saves two of the passes over N x N values. This is tried
        # until a row does not allow it.
        self.unshifted = call.query.device.type == "cpu" and call.mask is None
        self.query = packed(call.query[0])  # H, N, d
        # With the scale in it: a product of two tensors alone is the fastest.
        self.key = packed_transposed(call.key[0], call.scale)  # H, d, N
        size = heads * rows * tokens
        self.logits = self.query.new_empty(size)
        self.keep_logits = logits
        self.weights = self.query.new_empty(size) if logits else self.logits

    def compute(self, rows: slice) -> RowBlock:
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
        torch.bmm(query, self.key, out=logits)
        if self.unshifted:
            totals = self.sum_rows(torch.exp(logits, out=weights), rows)
            sums = totals.numpy()  # its extremes cost less than torch's
            if SAFE_TOTALS[0] < sums.min() and sums.max() < SAFE_TOTALS[1]:
                return totals
            self.unshifted = False
            torch.bmm(query, self.key, out=logits)
        mask = self.call.mask_of(rows)
        if mask is not None:
            logits.copy_(add_mask(logits, mask[0]))
        logits.sub_(logits.amax(dim=-1, keepdim=True))
        totals = self.sum_rows(torch.exp(logits, out=weights), rows)
        low, high = torch.aminmax(totals)
        if not (low > 0 and high < math.inf):  # also true for NaN
            raise broken_row(self.call.layer, "holds numbers that are not finite")
        if mask is not None and self.keep_logits:
            logits.clamp_min_(LOWEST)  # the entropy of a masked token would be 0 * -inf
        return totals


def packed(tensor: Tensor) -> Tensor:
    """A tensor (H, N, d) in float32, on a CPU contiguous.

    A model's queries, keys and values are views into one tensor, in which the rows of a head lie
    pages apart; products of contiguous tensors take two thirds of the time.
    """
    tensor = tensor.float()
    return tensor.contiguous() if tensor.device.type == "cpu" else tensor


def packed_transposed(tensor: Tensor, scale: float = 1.0) -> Tensor:
    """A tensor (H, N, d) times a scale as (H, d, N) in float32, on a CPU contiguous."""
    tensor = packed(tensor)
    if tensor.device.type != "cpu":
        return tensor.transpose(-2, -1) * scale
    heads, tokens, width = tensor.shape
    result = tensor.new_empty(heads, width, tokens)
    for head in range(heads):  # torch has a fast transpose for two dimensions
        result[head].copy_(tensor[head].t())
    return result if scale == 1.0 else result.mul_(scale)


def patch_mean_row(call: AttentionCall, prefix: int) -> Tensor:
    """Mean of the patch queries' rows, per head of one image: (H, N) float32."""
    _, heads, tokens, _ = call.query.shape
    total = torch.zeros(heads, tokens, device=call.query.device)
    for block in row_blocks(call, first_row=prefix):
        total += row_sum(block)
    return total / (tokens - prefix)


def columns(call: AttentionCall, index: Tensor) -> Tensor:
    """Attention of all tokens to the tokens ``index`` (Q,), per head of one image: (H, Q, N)."""
    _, heads, tokens, _ = call.query.shape
    found = torch.empty(heads, len(index), tokens, device=call.query.device)
    for block in row_blocks(call):
        found[:, :, block.rows] = (block.weights[..., index] / block.totals).transpose(1, 2)
    return found


def weighted_row(call: AttentionCall, weights: Tensor) -> Tensor:
    """Sum of the rows of one image, each times its weight (N,): per head (H, N) float32."""
    _, heads, tokens, _ = call.query.shape
    total = torch.zeros(heads, tokens, device=call.query.device)
    for block in row_blocks(call):
        total += row_sum(block, weights=weights)
    return total


def row_sum(block: RowBlock, skip: int = 0, weights: Tensor | None = None) -> Tensor:
    """Sum of a block's rows of attention from the ``skip``-th on: (H, N).

    weights (N,): of each row of the matrix in the sum; None: 1.
    """
    shares = block.totals[:, skip:].reciprocal().transpose(-2, -1)  # H, 1, R
    if weights is not None:
        shares = shares * weights[block.rows][skip:]
    return (shares @ block.weights[:, skip:])[:, 0]
