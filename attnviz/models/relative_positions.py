"""Biases of relative positions (BEiT) at another grid than the stored one.

They are added to the attention logits, so the model's attention call gets them as its mask. The
table has a row for every pair of distances. timm resizes it as BEiT's own code does, with sample
points that are denser near the centre; transformers (``hf``) resizes it bilinearly. At the stored
grid both are the table itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.functional import interpolate

from attnviz.domain import Positions, Size
from attnviz.models.weights.grid import BIAS_TABLE

_State = dict[str, Any]
_SIZES = ("window_size", "window_area", "num_relative_distance", "bias_shape")
"""Attributes of timm's modules that follow from the grid."""
_FOR_CLS = 3


class RelativePositions:
    """The modules of a timm ViT that hold such biases, with their state for each grid in use."""

    def __init__(self, module: nn.Module, rule: Positions, *, keep: int) -> None:
        self._bilinear = rule is Positions.HF
        self._keep = keep
        self._holders: list[Any] = [
            part
            for part in module.modules()
            if hasattr(part, "set_window_size") and getattr(part, "window_size", None) is not None
        ]
        self._by_grid: dict[Size, list[_State]] = {}

    @contextmanager
    def at(self, grid: Size) -> Iterator[None]:
        """Give the modules the biases of a grid for one pass, and their own ones back after it."""
        if not self._holders:
            yield
            return
        own = [_state(holder) for holder in self._holders]
        try:
            self._set(grid, own)
            yield
        finally:
            for holder, state in zip(self._holders, own, strict=True):
                _restore(holder, state)

    def _set(self, grid: Size, own: list[_State]) -> None:
        """The modules at a grid: from memory, or by timm's own resizing."""
        if grid in self._by_grid:
            for holder, state in zip(self._holders, self._by_grid[grid], strict=True):
                _restore(holder, state)
            return
        with (
            torch.inference_mode(mode=False),
            torch.no_grad(),
            warnings.catch_warnings(),  # of torch, on how timm resizes a table
        ):
            warnings.simplefilter("ignore")
            for holder, state in zip(self._holders, own, strict=True):
                holder.set_window_size(tuple(grid))
                stored = state["_parameters"].get(BIAS_TABLE)
                if self._bilinear and stored is not None:
                    table = _bilinear(stored, Size(*state["window_size"]), grid)
                    setattr(holder, BIAS_TABLE, nn.Parameter(table, requires_grad=False))
        while len(self._by_grid) >= self._keep:
            del self._by_grid[next(iter(self._by_grid))]
        self._by_grid[grid] = [_state(holder) for holder in self._holders]


def _state(holder: Any) -> _State:
    sizes = {name: getattr(holder, name) for name in _SIZES if hasattr(holder, name)}
    tensors = {name: dict(getattr(holder, name)) for name in ("_parameters", "_buffers")}
    return sizes | tensors


def _restore(holder: Any, state: _State) -> None:
    for name, value in state.items():
        holder.__dict__[name] = dict(value) if isinstance(value, dict) else value


def _bilinear(table: torch.Tensor, grid: Size, target: Size) -> torch.Tensor:
    """The table (distances + 3, heads) of another grid, as transformers makes it."""
    distances = table[:-_FOR_CLS]
    # transformers reads the rows as (width, height), which only matters where they differ.
    image = distances.reshape(1, 2 * grid.width - 1, 2 * grid.height - 1, -1).permute(0, 3, 1, 2)
    size = (2 * target.height - 1, 2 * target.width - 1)
    resized = interpolate(image.float(), size=size, mode="bilinear").to(table.dtype)
    flat = resized.permute(0, 2, 3, 1).reshape(size[0] * size[1], -1)
    return torch.cat([flat, table[-_FOR_CLS:]])
