"""One layer of a rollout: its heads fused to one matrix, and row vectors multiplied by it."""

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
"""Floats discarded from and multiplied at a time (1 MiB): they stay in cache in between."""

TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, eq=False)
class LayerMatrix:
    """One layer's matrix (N, N), and the product of row vectors with A'.

    A' is ``identity`` * I + ``weight`` * matrix, rows renormalised; where the matrix is A' already,
    identity is 0 and weight 1. ``sums`` (N,): of the matrix's rows; None: all are 1. ``keep_from``:
    smaller values count as 0; None keeps all.
    """

    matrix: Tensor
    sums: Tensor | None
    keep_from: float | None
    identity: float
    weight: float

    def push(self, vectors: Tensor) -> Tensor:
        """Row vectors (K, N) times A': (K, N). A row that lost all its values counts as I's."""
        if self.keep_from is None:
            sums = torch.ones_like(vectors[0]) if self.sums is None else self.sums
            scales = self.identity + self.weight * sums
            products = (vectors / scales.clamp_min(TINY)) @ self.matrix
        else:
            scales, products = self._push_kept(vectors, self.keep_from)
        own = vectors * (self.identity / scales.clamp_min(TINY)).masked_fill(scales <= 0, 1.0)
        return own.add_(products, alpha=self.weight)

    def _push_kept(self, vectors: Tensor, keep_from: float) -> tuple[Tensor, Tensor]:
        """What A' is divided by (N,) after the discard, and vectors divided by it times matrix."""
        tokens = self.matrix.shape[0]
        count = max(1, CHUNK_FLOATS // tokens)
        scales, products = torch.empty_like(vectors[0]), torch.zeros_like(vectors)
        # threshold() keeps what is above its bound; values equal to the k-th smallest stay.
        bound = float(np.nextafter(np.float32(keep_from), np.float32(-np.inf)))
        for start in range(0, tokens, count):
            rows = slice(start, min(start + count, tokens))
            kept = threshold(self.matrix[rows], bound, 0.0)
            scale = self.identity + self.weight * kept.sum(dim=-1)
            products.addmm_(vectors[:, rows] / scale.clamp_min(TINY), kept)
            scales[rows] = scale
        return scales, products


def push_rows(
    vectors: Tensor, rows: slice, chunk: Tensor, identity: float, weight: float, out: Tensor
) -> None:
    """Add the part of row vectors (K, N) times A' that rows ``chunk`` (R, N) make to ``out``.

    A' as in ``LayerMatrix``. A row that lost all its values counts as I's.
    """
    sums = identity + weight * chunk.sum(dim=-1)  # R
    lost = sums <= 0
    passed = vectors[:, rows] / sums.masked_fill(lost, 1.0)  # K, R
    kept = passed.masked_fill(lost, 0.0)
    out.addmm_(kept, chunk, alpha=weight)
    out[:, rows] += identity * kept + passed.masked_fill(~lost, 0.0)


class Fuser:
    """Fuses the chosen heads of blocks of one model, on one device."""

    def __init__(
        self, heads: Sequence[int], total: int, fusion: Fusion, device: torch.device
    ) -> None:
        self.fusion = fusion
        self.count = len(heads)
        self.index = head_index(heads, device) if self.count < total else None
        self.chosen: Tensor | None = None  # H, 1, 1
        if self.index is not None:
            self.chosen = torch.zeros(total, 1, 1, device=device).index_fill_(0, self.index, 1.0)

    def fuse(self, block: RowBlock, out: Tensor, weight: float = 1.0) -> None:
        """Write the fused rows of a block, times ``weight``, to ``out`` (R, N).

        The block is used up.
        """
        if self.fusion is Fusion.MEAN:
            # Each row of all heads, (H, N), is weighted and summed in one pass as a product from
            # the left; heads that are not chosen have weight 0.
            shares = (block.totals * (self.count / weight)).reciprocal_()
            if self.chosen is not None:
                shares *= self.chosen
            torch.bmm(shares.permute(1, 2, 0), block.weights.transpose(0, 1), out=out[:, None])
            return
        attention = block.attention()
        if self.index is not None:
            attention = attention[self.index]
        reduce = torch.amax if self.fusion is Fusion.MAX else torch.amin
        reduce(attention, dim=0, out=out)
        if weight != 1.0:
            out *= weight


def layer_matrix(
    call: AttentionCall,
    heads: Sequence[int],
    options: RolloutOptions,
    matrix: Tensor,
    output: Tensor | None = None,
) -> LayerMatrix:
    """The fused matrix of one layer of one image, computed in ``matrix`` (N, N).

    output (H, N, d): as for ``row_blocks``.
    """
    after = options.discard_ratio > 0 and options.discard is DiscardOrder.AFTER
    identity, weight = options.residual, 1 - options.residual
    fuser = Fuser(heads, call.query.shape[1], options.fusion, matrix.device)
    # Rows of a mean of distributions sum to 1.
    sums = None if fuser.fusion is Fusion.MEAN else matrix.new_empty(matrix.shape[0])
    for block in row_blocks(call, output=output):
        rows = matrix[block.rows]
        fuser.fuse(block, rows, weight if after else 1.0)
        if sums is not None:
            torch.sum(rows, dim=-1, out=sums[block.rows])
            if after:
                rows /= identity + sums[block.rows, None]
    if after:
        matrix.diagonal().add_(identity if sums is None else identity / (identity + sums))
        identity, weight = 0.0, 1.0
    return LayerMatrix(matrix, sums, keep_from(matrix, options.discard_ratio), identity, weight)


class MatrixPool:
    """Memory of matrices that have been used, for the next layers and images of the same size.

    Fresh pages are slow: a quarter of a plain pass for the 570 MB of a rollout of 3,601 tokens. On
    other devices torch reuses memory by itself.
    """

    def __init__(self) -> None:
        self._spare: list[Tensor] = []

    def take(self, tokens: int, device: torch.device) -> Tensor:
        """A matrix (N, N) float32 with undefined values. Memory of another size is freed."""
        while self._spare:
            matrix = self._spare.pop()
            if matrix.shape[0] == tokens and matrix.device == device:
                return matrix
        return torch.empty(tokens, tokens, device=device)

    def give(self, matrix: Tensor) -> None:
        """Return a matrix that is not used any more."""
        if matrix.device.type == "cpu":
            self._spare.append(matrix)


_pools: WeakKeyDictionary[AttentionModel, MatrixPool] = WeakKeyDictionary()


def pool_of(model: AttentionModel) -> MatrixPool:
    """The pool of a model, which lives as long as the model does."""
    return _pools.setdefault(model, MatrixPool())


def keep_from(matrix: Tensor, ratio: float) -> float | None:
    """The k-th smallest value, k = int(N * N * ratio): smaller ones go. None: all stay."""
    k = int(matrix.numel() * ratio)
    return kth_smallest(matrix, k) if k else None
