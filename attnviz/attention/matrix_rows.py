"""Whole attention matrices row by row: logits, and attention normalised.

``blocks.row_blocks`` is faster, but leaves rows unnormalised; it is for sums over rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from attnviz.attention.blocks import packed, packed_transposed, rows_per_block, spread_rows
from attnviz.attention.capture import AttentionCall, add_mask


@dataclass(frozen=True, eq=False)
class MatrixRows:
    """Rows ``rows`` of all heads of one image: logits and attention (H, R, N) float32.

    Both tensors are work buffers: they are valid until the next rows are requested.
    """

    rows: slice
    logits: Tensor
    attention: Tensor


def matrix_rows(call: AttentionCall) -> Iterator[MatrixRows]:
    """All rows of one image (``call`` with B = 1), in order.

    Raises:
        AttentionError: A row is broken, or attention times V is not the model's own output.
    """
    tokens = call.query.shape[-2]
    query = packed(call.query[0])  # H, N, d
    key = packed_transposed(call.key[0], call.scale)  # H, d, N
    call.rows(spread_rows(call))
    count = rows_per_block(call)
    for start in range(0, tokens, count):
        rows = slice(start, min(start + count, tokens))
        logits = query[:, rows] @ key  # H, R, N
        mask = call.mask_of(rows)
        if mask is not None:
            logits = add_mask(logits, mask[0])
        yield MatrixRows(rows, logits, logits.softmax(dim=-1))
