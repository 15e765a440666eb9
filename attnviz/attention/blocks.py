"""Whole attention matrices, a few rows at a time.

A matrix of N x N per head does not fit (5 GB for ViT-S/8 at 1024 pixels), so whoever needs all of
its rows sees them as blocks. On a CPU a block is one head and few rows, which stays in cache
between the softmax and what is done with it; on a GPU it is all heads and as many rows as pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.attention.capture import AttentionCall, add_mask, check_output, check_rows

CPU_BLOCK_FLOATS = 1 << 19
"""Floats in a block on a CPU (2 MiB): about what one core's second-level cache holds."""

GPU_BLOCK_FLOATS = 1 << 26
"""Floats in a block on a GPU (256 MiB)."""


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows ``rows`` of the heads ``heads`` of one image: attention (h, R, N) float32.

    The tensor is a work buffer: it holds its values until the next block is asked for.
    """

    image: int
    heads: slice
    rows: slice
    attention: Tensor


def row_blocks(
    call: AttentionCall, output: Tensor | None = None, first_row: int = 0
) -> Iterator[RowBlock]:
    """All rows of all heads of all images from ``first_row`` on: rows outside, heads inside.

    With ``output`` (B, H, N, d) the block's own attention times V is written there on the way, so
    that the model can go on with it and the fused kernel need not run as well.

    Raises:
        AttentionError: A row of a block is broken, or the output is not the model's own.
    """
    images, heads, tokens, width = call.query.shape
    on_cpu = call.query.device.type == "cpu"
    heads_each = 1 if on_cpu else heads
    limit = CPU_BLOCK_FLOATS if on_cpu else GPU_BLOCK_FLOATS
    rows_each = max(16, min(tokens, limit // (tokens * heads_each)))
    buffer = call.query.new_empty((heads_each * rows_each * tokens,), dtype=torch.float32)
    for image in range(images):
        query = call.query[image].float() * call.scale  # H, N, d
        key = call.key[image].float().transpose(-2, -1).contiguous()  # H, d, N
        value = call.value[image].float()  # H, N, d
        for start in range(first_row, tokens, rows_each):
            rows = slice(start, min(start + rows_each, tokens))
            count = rows.stop - rows.start
            for head in range(0, heads, heads_each):
                chosen = slice(head, head + heads_each)
                block = buffer[: heads_each * count * tokens].view(heads_each, count, tokens)
                torch.matmul(query[chosen, rows], key[chosen], out=block)
                if call.mask is not None:
                    block.copy_(add_mask(block, _mask_of(call.mask, image, chosen, rows)))
                torch.softmax(block, dim=-1, out=block)
                if output is not None:
                    output[image, chosen, rows] = (block @ value[chosen]).to(output.dtype)
                yield RowBlock(image, chosen, rows, block)
        _check_image(call, image, output, width)


def _mask_of(mask: Tensor, image: int, heads: slice, rows: slice) -> Tensor:
    """The part of a (broadcastable) mask that concerns a block."""
    while mask.dim() < 4:
        mask = mask.unsqueeze(0)
    mask = mask[image if mask.shape[0] > 1 else 0]
    mask = mask[heads] if mask.shape[0] > 1 else mask
    return mask[:, rows] if mask.shape[1] > 1 else mask


def _check_image(call: AttentionCall, image: int, output: Tensor | None, width: int) -> None:
    """The invariants on four rows spread over the image: enough to catch a wrong matrix."""
    tokens = call.query.shape[-2]
    index = torch.linspace(0, tokens - 1, 4, device=call.query.device).long()
    one = AttentionCall(
        call.layer,
        call.query[image : image + 1],
        call.key[image : image + 1],
        call.value[image : image + 1],
        _image_mask(call.mask, image),
        call.scale,
    )
    attention = one.rows(index)
    check_rows(attention, call.layer)
    if output is not None and width == output.shape[-1]:
        ours = attention @ one.value.float()
        check_output(ours, output[image : image + 1, :, index], one.value, call.layer)


def _image_mask(mask: Tensor | None, image: int) -> Tensor | None:
    if mask is None or mask.dim() < 4 or mask.shape[0] == 1:
        return mask
    return mask[image : image + 1]
