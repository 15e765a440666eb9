"""Whole attention matrices, a few rows at a time.

A matrix of N x N per head does not fit (6.4 GB a layer for ViT-S/8 at 1024 pixels), so whoever
needs all of its rows sees them in strips: some rows of one head after the other. On a CPU a strip
stays in one core's cache between the exponential and what is done with it, and every core has a
strip of its own; on a GPU it is all heads and many rows at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.attention.capture import AttentionCall, add_mask, check_output
from attnviz.attention.share import OrderedSum, share

CPU_BLOCK_FLOATS = 1 << 20
"""Floats in a block on a CPU (4 MiB). At 3,601 tokens on two cores a rollout took 1.33 times the
plain pass with it and 1.54 times with half of it; at 785 tokens it makes no difference."""

GPU_BLOCK_FLOATS = 1 << 26
"""Floats in a block on a GPU (256 MiB)."""

SAFE_TOTALS = (1e-6, 1e30)
"""Sums of e^logit over a row for which its maximum may stay in: nothing has overflowed, and what
has underflowed is less than 1e-25 of the row."""

LIKELY_SAFE = (-5.0, 40.0)
"""Largest logits of a few rows for which the others' sums are tried without the shift."""

LOWEST = -104.0
"""e^x is 0 in float32 from here down."""


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows ``rows`` of heads ``heads`` of one image: attention is ``weights`` / ``totals``.

    ``weights`` (h, R, N) float32: e^logit, up to a factor a row. ``totals`` (h, R, 1): their sums.
    ``logits`` (h, R, N): ln of the weights, only when asked for. All are work buffers: they hold
    their values until the next block is asked for, and may be written to until then.
    """

    heads: slice
    rows: slice
    weights: Tensor
    totals: Tensor
    logits: Tensor | None

    def attention(self) -> Tensor:
        """Attention (h, R, N), made in place of the weights."""
        self.weights.div_(self.totals)
        self.totals.fill_(1.0)
        return self.weights


Visit = Callable[[int, slice, Iterator[RowBlock]], None]
"""Takes a strip: its place, its rows, and its blocks, all heads in order, each seen once."""


def each_strip(
    call: AttentionCall,
    visit: Visit,
    *,
    first_row: int = 0,
    output: Tensor | None = None,
    logits: bool = False,
) -> None:
    """Show every strip of one image (``call`` with B = 1) to ``visit``, on a CPU from many threads.

    With ``output`` (H, N, d) each block's attention times V is written there on the way, so that
    the model can go on with it and its fused kernel need not run as well.

    Raises:
        AttentionError: A row is broken, or the output is not the model's own.
    """
    strips = _Strips(call, output, logits=logits)
    tokens = call.query.shape[-2]
    on_cpu = call.query.device.type == "cpu"
    places = range(first_row, tokens, strips.rows_each)

    def work(place: int) -> None:
        rows = slice(places[place], min(places[place] + strips.rows_each, tokens))
        visit(place, rows, strips.blocks(rows))

    if on_cpu:
        share(work, len(places))
    else:
        for place in range(len(places)):
            work(place)
    if output is not None:
        made = output[:, strips.sampled].float()
        check_output(made, strips.sample.output[0], call.value, call.layer)


class _Strips:
    """One image's queries, keys and values, and the blocks of attention that they make."""

    def __init__(self, call: AttentionCall, output: Tensor | None, *, logits: bool) -> None:
        _, heads, tokens, _ = call.query.shape
        self.call = call
        self.output = output
        self.keep_logits = logits
        self.query = call.query[0].float() * call.scale  # H, N, d
        self.key = call.key[0].float().transpose(-2, -1).contiguous()  # H, d, N
        self.value = call.value[0].float().contiguous()  # H, N, d
        on_cpu = call.query.device.type == "cpu"
        self.heads_each = 1 if on_cpu else heads
        limit = CPU_BLOCK_FLOATS if on_cpu else GPU_BLOCK_FLOATS
        self.rows_each = max(16, min(tokens, limit // (tokens * self.heads_each)))
        if on_cpu:
            threads = torch.get_num_threads()
            rounds = math.ceil(tokens / (self.rows_each * threads))
            self.rows_each = math.ceil(tokens / (rounds * threads))
        # The invariants on rows spread over the tokens: a wrong matrix shows in any row.
        self.sampled = torch.linspace(0, tokens - 1, 4, device=call.query.device).long()
        self.sample = call.sample(self.sampled)
        # Leaving the row's maximum in saves two of the passes over N x N values. It is tried where
        # the sample promises that it is harmless, and undone wherever it was not.
        self.try_unshifted = False
        if on_cpu and call.mask is None:
            low, high = torch.aminmax(self.sample.logits.amax(dim=-1))
            self.try_unshifted = bool(LIKELY_SAFE[0] < low and high < LIKELY_SAFE[1])

    def blocks(self, rows: slice) -> Iterator[RowBlock]:
        """The blocks of a strip, head after head, in buffers of their own."""
        heads, tokens, _ = self.query.shape
        shape = (self.heads_each, rows.stop - rows.start, tokens)
        logits = self.query.new_empty(shape)
        weights = self.query.new_empty(shape) if self.keep_logits else logits
        for head in range(0, heads, self.heads_each):
            chosen = slice(head, head + self.heads_each)
            totals = self._exponentials(chosen, rows, logits, weights)
            if self.output is not None:
                out = self.output[chosen, rows]
                _times_value(weights, totals, self.value[chosen], out)
            yield RowBlock(chosen, rows, weights, totals, logits if self.keep_logits else None)

    def _exponentials(self, heads: slice, rows: slice, logits: Tensor, weights: Tensor) -> Tensor:
        """Fill the logits and weights of a block; returns the sums (h, R, 1) of the weights."""
        query, key = self.query[heads, rows], self.key[heads]
        if self.try_unshifted:
            torch.mm(query[0], key[0], out=logits[0])
            totals = torch.exp(logits, out=weights).sum(dim=-1, keepdim=True)
            low, high = torch.aminmax(totals)
            if SAFE_TOTALS[0] < low and high < SAFE_TOTALS[1]:
                return totals
        torch.matmul(query, key, out=logits)
        mask = self.call.mask_of(rows, heads)
        if mask is not None:
            logits.copy_(add_mask(logits, mask[0]))
        logits.sub_(logits.amax(dim=-1, keepdim=True))
        totals = torch.exp(logits, out=weights).sum(dim=-1, keepdim=True)
        if mask is not None and self.keep_logits:
            logits.clamp_min_(LOWEST)  # of a hidden token: 0 * -inf is no number
        return totals


def patch_mean_row(call: AttentionCall, prefix: int) -> Tensor:
    """Mean over the patch queries of their rows, per head of one image: (H, N) float32."""
    _, heads, tokens, _ = call.query.shape
    mean = OrderedSum(torch.zeros(heads, tokens, device=call.query.device))

    def visit(place: int, _rows: slice, blocks: Iterator[RowBlock]) -> None:
        mean.add(place, torch.cat([row_sum(block) for block in blocks]))

    each_strip(call, visit, first_row=prefix)
    return mean.total / (tokens - prefix)


def row_sum(block: RowBlock, skip: int = 0) -> Tensor:
    """Sum of a block's rows of attention from the ``skip``-th on: (h, N)."""
    shares = block.totals[:, skip:].reciprocal().transpose(-2, -1)  # h, 1, R
    return (shares @ block.weights[:, skip:])[:, 0]


def _times_value(weights: Tensor, totals: Tensor, value: Tensor, out: Tensor) -> None:
    """Write attention (h, R, N) times V (h, N, d) to ``out``, in its own number type."""
    if out.dtype == torch.float32 and weights.shape[0] == 1:
        torch.mm(weights[0], value[0], out=out[0])
        out.div_(totals)
    else:
        out.copy_((weights @ value).div_(totals))
