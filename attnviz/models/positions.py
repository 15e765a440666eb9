"""Learned position embeddings at another grid than the stored one: three rules, by name.

original    what the model's own code does. DINO (vision_transformer.py, interpolate_pos_encoding)
            and DINOv2 without registers: bicubic by the scale factor (n + 0.1) / M, no antialias.
            DINOv2 with registers: bicubic to the target size, antialias. Others: as timm.
timm        bicubic to the target size, antialias (timm.layers.pos_embed).
hf          bicubic to the target size, no antialias (transformers, interpolate_pos_encoding).

At the stored grid nothing is resized and all agree. Rotary embeddings need no rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from attnviz.domain import Positions, Size

OFFSET = 0.1
"""Added to the target grid by the original code, so that rounding does not lose a row."""


def resize_positions(
    stored: Tensor, grid: Size, target: Size, rule: Positions, *, offset: bool
) -> Tensor:
    """Patch position embeddings (1, gh * gw, width) for the ``target`` grid, in float32.

    ``offset``: for the ``original`` rule, whether the model's code scales by (n + 0.1) / M (DINO,
    DINOv2) or resizes to the target size with antialias (DINOv2 with registers).
    """
    if grid == target:
        return stored
    image = stored.float().reshape(1, *grid, -1).permute(0, 3, 1, 2)  # 1, width, gh, gw
    if rule is Positions.ORIGINAL and offset:
        factor = ((target.height + OFFSET) / grid.height, (target.width + OFFSET) / grid.width)
        resized = interpolate(image, scale_factor=factor, mode="bicubic")
    else:
        resized = interpolate(
            image, size=tuple(target), mode="bicubic", antialias=rule is not Positions.HF
        )
    if resized.shape[-2:] != tuple(target):
        raise AssertionError(f"positions became {tuple(resized.shape[-2:])}, expected {target}")
    return resized.permute(0, 2, 3, 1).flatten(1, 2)  # 1, gh * gw, width


class PositionTable:
    """The stored position embedding of a timm ViT, resized once for each grid that is used."""

    KEEP = 8

    def __init__(self, module: Any, rule: Positions, *, offset: bool) -> None:
        self.rule = rule
        self.offset = offset
        self._module = module
        self._by_grid: dict[Size, nn.Parameter] = {}

    @contextmanager
    def at(self, grid: Size) -> Iterator[None]:
        """Give the module the embedding of a grid for one pass, and its own one back after it."""
        module = self._module
        patch_embed = module.patch_embed
        stored, stored_grid = module.pos_embed, patch_embed.grid_size
        if stored is None or Size(*stored_grid) == grid:
            yield
            return
        module.pos_embed = self._resized(stored, Size(*stored_grid), grid)
        patch_embed.grid_size = tuple(grid)
        try:
            yield
        finally:
            module.pos_embed, patch_embed.grid_size = stored, stored_grid

    def _resized(self, stored: Tensor, stored_grid: Size, grid: Size) -> nn.Parameter:
        if grid not in self._by_grid:
            while len(self._by_grid) >= self.KEEP:
                del self._by_grid[next(iter(self._by_grid))]
            prefix = stored.shape[1] - stored_grid.height * stored_grid.width
            with torch.no_grad():
                patches = resize_positions(
                    stored[:, prefix:], stored_grid, grid, self.rule, offset=self.offset
                )
                table = torch.cat([stored[:, :prefix], patches.to(stored.dtype)], dim=1)
            self._by_grid[grid] = nn.Parameter(table, requires_grad=False)
        return self._by_grid[grid]
