"""One layer of a rollout: its heads fused to one matrix, and how a row vector passes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import threshold

from attnviz.attention.arrays import head_index
from attnviz.attention.blocks import RowBlock, row_blocks
from attnviz.attention.capture import AttentionCall, AttentionModel
from attnviz.attention.select import kth_smallest
from attnviz.domain import DiscardOrder, Fusion, RolloutOptions

CHUNK_FLOATS = 1 << 18
"""Floats that a vector passes at a time (1 MiB): they stay in cache until the sum is taken."""


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
        out = torch.zeros_like(vectors)
        for start in range(0, tokens, rows_each):
            rows = slice(start, min(start + rows_each, tokens))
            chunk = self._above(self.matrix[rows])
            push_rows(vectors, rows, chunk, self.identity, self.weight, out)
        return out

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


def fuse(block: RowBlock, heads: Tensor, fusion: Fusion, into: Tensor) -> None:
    """Fuse the heads of a block whose indices are ``heads`` (h,) to rows ``into`` (R, N)."""
    if fusion is Fusion.MEAN:
        # Each row of all heads, (H, N), is weighted and summed in one pass as a product from the
        # left; heads that are not chosen have weight 0.
        shares = torch.zeros_like(block.totals)
        shares[heads] = (block.totals[heads] * len(heads)).reciprocal_()
        torch.bmm(shares.permute(1, 2, 0), block.weights.transpose(0, 1), out=into[:, None])
    else:
        attention = block.attention()
        if len(heads) < attention.shape[0]:
            attention = attention[heads]
        reduce = torch.amax if fusion is Fusion.MAX else torch.amin
        reduce(attention, dim=0, out=into)


def layer_matrix(
    call: AttentionCall,
    heads: Sequence[int],
    options: RolloutOptions,
    matrix: Tensor,
    output: Tensor | None = None,
) -> LayerMatrix:
    """The layer of one image, ready to be passed by a vector; made in ``matrix`` (N, N)."""
    residual = options.residual
    after = options.discard_ratio > 0 and options.discard is DiscardOrder.AFTER
    index = head_index(heads, matrix.device)
    for block in row_blocks(call, output=output):
        fused = matrix[block.rows]
        fuse(block, index, options.fusion, fused)
        if after:
            scale = residual + (1 - residual) * fused.sum(dim=-1, keepdim=True)
            fused.mul_((1 - residual) / scale)
            fused.diagonal(offset=block.rows.start).add_((residual / scale)[:, 0])
    identity, weight = (0.0, 1.0) if after else (residual, 1 - residual)
    return LayerMatrix(matrix, keep_from(matrix, options.discard_ratio), identity, weight)


class MatrixPool:
    """Memory of matrices that have been passed, for the next layers and images of the same size.

    The kernel takes its time to hand out fresh pages: a quarter of a plain pass for the 570 MB of a
    rollout of 3,601 tokens. On a GPU torch keeps them by itself.
    """

    def __init__(self) -> None:
        self._spare: list[Tensor] = []

    def take(self, tokens: int, device: torch.device) -> Tensor:
        """A matrix (N, N) float32 with any values. Memory of another size is let go."""
        while self._spare:
            matrix = self._spare.pop()
            if matrix.shape[0] == tokens and matrix.device == device:
                return matrix
        return torch.empty(tokens, tokens, device=device)

    def give(self, matrix: Tensor) -> None:
        """Take back a matrix that nobody looks at any more."""
        if matrix.device.type == "cpu":
            self._spare.append(matrix)


_pools: WeakKeyDictionary[AttentionModel, MatrixPool] = WeakKeyDictionary()


def pool_of(model: AttentionModel) -> MatrixPool:
    """The pool of a model: it lives as long as the model does."""
    return _pools.setdefault(model, MatrixPool())


def keep_from(matrix: Tensor, ratio: float) -> float | None:
    """The k-th smallest value, k = int(N * N * ratio): what is smaller goes. None: all stay."""
    k = int(matrix.numel() * ratio)
    return kth_smallest(matrix, k) if k else None
