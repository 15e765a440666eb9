"""Learned positions at another grid than the stored one: three rules, by name.

original    what the model's own code does. DINO (vision_transformer.py, interpolate_pos_encoding)
            and DINOv2 without registers: bicubic by the scale factor (n + 0.1) / M, no antialias.
            DINOv2 with registers: bicubic to the target size, antialias. Others: as timm.
timm        bicubic to the target size, antialias (timm.layers.pos_embed).
hf          what transformers does (interpolate_pos_encoding): bicubic to the target size, with
            antialias for DINOv2 with registers and without it for all others.

At the stored grid nothing is resized and all agree. Rotary embeddings need no rule. Biases that
depend on relative positions are in ``relative_positions``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from attnviz.domain import Positions, Size
from attnviz.models.relative_positions import RelativePositions

OFFSET = 0.1
"""Added to the target grid by the original code, so that rounding does not lose a row."""


@dataclass(frozen=True)
class Resampling:
    """How stored positions are brought to another grid; bicubic.

    ``by_offset``: by the scale factor (n + 0.1) / M, without antialias.
    """

    antialias: bool = True
    by_offset: bool = False


def resampling_of(rule: Positions, *, by_offset: bool, registers: int) -> Resampling:
    """What a rule means for a model.

    ``by_offset``: whether the model's own code scales by (n + 0.1) / M, as DINO and DINOv2 without
    registers do.
    """
    if rule is Positions.ORIGINAL and by_offset:
        return Resampling(antialias=False, by_offset=True)
    return Resampling(antialias=rule is not Positions.HF or registers > 0)


def resize_positions(stored: Tensor, grid: Size, target: Size, how: Resampling) -> Tensor:
    """Patch position embeddings (1, gh * gw, width) for the ``target`` grid, in float32."""
    if grid == target:
        return stored
    image = stored.float().reshape(1, *grid, -1).permute(0, 3, 1, 2)  # 1, width, gh, gw
    if how.by_offset:
        factor = ((target.height + OFFSET) / grid.height, (target.width + OFFSET) / grid.width)
        resized = interpolate(image, scale_factor=factor, mode="bicubic")
    else:
        resized = interpolate(image, size=tuple(target), mode="bicubic", antialias=how.antialias)
    return resized.permute(0, 2, 3, 1).flatten(1, 2)  # 1, gh * gw, width


class PositionTable:
    """The stored positions of a timm ViT, resized once for each grid that is used."""

    KEEP = 8

    def __init__(self, module: Any, rule: Positions, *, by_offset: bool, registers: int) -> None:
        self.by_offset = by_offset
        self._how = resampling_of(rule, by_offset=by_offset, registers=registers)
        self._module = module
        self._by_grid: dict[Size, nn.Parameter] = {}
        self._relative = RelativePositions(module, rule, keep=self.KEEP)

    @contextmanager
    def at(self, grid: Size) -> Iterator[None]:
        """Give the module the positions of a grid for one pass, and its own ones back after it."""
        module = self._module
        patch_embed = module.patch_embed
        stored, stored_grid = getattr(module, "pos_embed", None), Size(*patch_embed.grid_size)
        if grid == stored_grid:
            yield
            return
        if stored is not None:
            module.pos_embed = self._resized(stored, stored_grid, grid)
        patch_embed.grid_size = tuple(grid)
        try:
            with self._relative.at(grid):
                yield
        finally:
            if stored is not None:
                module.pos_embed = stored
            patch_embed.grid_size = tuple(stored_grid)

    def _resized(self, stored: Tensor, stored_grid: Size, grid: Size) -> nn.Parameter:
        if grid not in self._by_grid:
            while len(self._by_grid) >= self.KEEP:
                del self._by_grid[next(iter(self._by_grid))]
            prefix = stored.shape[1] - stored_grid.height * stored_grid.width
            with torch.no_grad():
                patches = resize_positions(stored[:, prefix:], stored_grid, grid, self._how)
                table = torch.cat([stored[:, :prefix], patches.to(stored.dtype)], dim=1)
            self._by_grid[grid] = nn.Parameter(table, requires_grad=False)
        return self._by_grid[grid]
