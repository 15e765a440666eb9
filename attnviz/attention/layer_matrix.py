"""One layer of a rollout: its heads fused to one matrix, and how a row vector passes it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import threshold

from attnviz.attention.blocks import RowBlock, each_strip
from attnviz.attention.capture import AttentionCall
from attnviz.attention.select import kth_smallest
from attnviz.attention.share import OrderedSum, share
from attnviz.domain import DiscardOrder, Fusion, RolloutOptions

CHUNK_FLOATS = 1 << 17
"""Floats that a vector passes at a time (512 KiB): they stay in cache until the sum is taken."""

STRIPS = 64
"""Parts, at most, that a matrix is passed in."""


@dataclass(frozen=True, eq=False)
class LayerMatrix:
    """One layer's matrix (N, N), and how a row vector passes it.

    ``keep_from``: smaller values count as 0; None keeps all. A' is ``identity`` * I + ``weight`` *
    matrix, rows renormalised; where the matrix is A' already, identity is 0 and weight 1.
    """

    matrix: Tensor
    keep_from: float | None
    identity: float
    weight: float

    def push(self, vectors: Tensor) -> Tensor:
        """Row vectors (K, N) times A': (K, N)."""
        tokens = self.matrix.shape[0]
        rows_each = max(1, CHUNK_FLOATS // tokens)
        chunks = math.ceil(tokens / rows_each)
        # Few strips, since each has a sum of its own; many enough that no thread waits long.
        starts = range(0, tokens, rows_each * math.ceil(chunks / STRIPS))
        total = OrderedSum(torch.zeros_like(vectors))

        def work(place: int) -> None:
            out = torch.zeros_like(vectors)
            stop = min(starts[place] + starts.step, tokens)
            for start in range(starts[place], stop, rows_each):
                rows = slice(start, min(start + rows_each, stop))
                chunk = self._above(self.matrix[rows])
                push_rows(vectors, rows, chunk, self.identity, self.weight, out)
            total.add(place, out)

        if vectors.device.type == "cpu":
            share(work, len(starts))
        else:
            for place in range(len(starts)):
                work(place)
        return total.total

    def _above(self, chunk: Tensor) -> Tensor:
        """The chunk with 0 for what is discarded."""
        if self.keep_from is None:
            return chunk
        # threshold() keeps what is above its bound; what equals the k-th smallest stays.
        bound = np.nextafter(np.float32(self.keep_from), np.float32(-np.inf))
        return threshold(chunk, float(bound), 0.0)


def push_rows(
    vectors: Tensor, rows: slice, chunk: Tensor, identity: float, weight: float, out: Tensor
) -> None:
    """Add to ``out`` (K, N) what the rows ``chunk`` (R, N) of one layer pass on of ``vectors``.

    A row that has lost everything passes its share to itself.
    """
    sums = identity + weight * chunk.sum(dim=-1)  # R
    lost = sums <= 0
    passed = vectors[:, rows] / sums.masked_fill(lost, 1.0)  # K, R
    kept = passed.masked_fill(lost, 0.0)
    out.addmm_(kept, chunk, alpha=weight)
    out[:, rows] += identity * kept + passed.masked_fill(~lost, 0.0)


def fuse(blocks: Iterator[RowBlock], heads: Sequence[int], fusion: Fusion, into: Tensor) -> None:
    """Fuse the chosen heads of a strip's blocks to rows ``into`` (R, N)."""
    first = True
    for block in blocks:
        for place, head in enumerate(
            range(block.heads.start, block.heads.start + len(block.weights))
        ):
            if head not in heads:
                continue
            if fusion is Fusion.MEAN:
                part = (block.totals[place] * len(heads)).reciprocal_()  # R, 1
                weights = block.weights[place]
                if first:
                    torch.mul(weights, part, out=into)
                else:
                    into.addcmul_(weights, part)
            else:
                rows = block.weights[place].div_(block.totals[place])
                if first:
                    into.copy_(rows)
                else:
                    join = torch.maximum if fusion is Fusion.MAX else torch.minimum
                    join(into, rows, out=into)
            first = False


def layer_matrix(
    call: AttentionCall,
    heads: Sequence[int],
    options: RolloutOptions,
    output: Tensor | None = None,
) -> LayerMatrix:
    """The fused matrix of one image and layer, ready to be passed by a vector."""
    residual = options.residual
    after = options.discard_ratio > 0 and options.discard is DiscardOrder.AFTER
    matrix = square(call.query.shape[-2], call.query.device)

    def visit(_place: int, rows: slice, blocks: Iterator[RowBlock]) -> None:
        fused = matrix[rows]
        fuse(blocks, heads, options.fusion, fused)
        if after:
            scale = residual + (1 - residual) * fused.sum(dim=-1, keepdim=True)
            fused.mul_((1 - residual) / scale)
            fused.diagonal(offset=rows.start).add_((residual / scale)[:, 0])

    each_strip(call, visit, output=output)
    identity, weight = (0.0, 1.0) if after else (residual, 1 - residual)
    return LayerMatrix(matrix, keep_from(matrix, options.discard_ratio), identity, weight)


def square(tokens: int, device: torch.device) -> Tensor:
    """Memory for a matrix (N, N) float32."""
    if device.type != "cpu":
        return torch.empty(tokens, tokens, device=device)
    # numpy asks for huge pages, which are several times faster to come by than torch's small ones.
    return torch.from_numpy(np.empty((tokens, tokens), dtype=np.float32))


def keep_from(matrix: Tensor, ratio: float) -> float | None:
    """The k-th smallest value, k = int(N * N * ratio): what is smaller goes. None: all stay."""
    k = int(matrix.numel() * ratio)
    return kth_smallest(matrix, k) if k else None
