"""Biases of relative positions, taken apart into what differs and put together again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from attnviz.attention.arrays import as_array
from attnviz.domain import RelativeBias, Size

if TYPE_CHECKING:
    from torch import Tensor

    from attnviz.attention.arrays import TokenLayout


def relative_bias(mask: Tensor, layout: TokenLayout) -> RelativeBias | None:
    """A mask (H, N, N) that is added to logits; None if patches do not go by relative position."""
    prefix, grid = layout.prefix, layout.grid
    patches = mask[:, prefix:, prefix:]
    index = _offsets(grid, mask.device)  # gh * gw, gh * gw
    offsets = mask.new_zeros(mask.shape[0], (2 * grid.height - 1) * (2 * grid.width - 1))
    offsets[:, index] = patches
    if not torch.equal(offsets[:, index], patches):
        return None
    shape = (-1, 2 * grid.height - 1, 2 * grid.width - 1)
    parts = offsets.reshape(shape), mask[:, :prefix], mask[:, prefix:, :prefix]
    return RelativeBias(*(as_array(part) for part in parts))


def full_bias(bias: RelativeBias) -> Tensor:
    """The mask (H, N, N) float32 again."""
    offsets, rows, columns = map(torch.from_numpy, bias.arrays())
    grid = Size((offsets.shape[1] + 1) // 2, (offsets.shape[2] + 1) // 2)
    patches = offsets.flatten(1)[:, _offsets(grid, offsets.device)]
    return torch.cat([rows, torch.cat([columns, patches], dim=2)], dim=1)


def _offsets(grid: Size, device: torch.device) -> Tensor:
    """The flat index of the offset of every pair of patches, (gh * gw, gh * gw)."""
    row, column = torch.meshgrid(
        torch.arange(grid.height, device=device),
        torch.arange(grid.width, device=device),
        indexing="ij",
    )
    row, column = row.flatten(), column.flatten()
    down = row[:, None] - row + grid.height - 1
    across = column[:, None] - column + grid.width - 1
    return down * (2 * grid.width - 1) + across
