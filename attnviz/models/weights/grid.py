"""Rows and columns of stored positions: only their number is in a file, not their grid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from attnviz.domain import Size
from attnviz.errors import CheckpointError, UsageError

BIAS_TABLE = "relative_position_bias_table"
_FOR_CLS = 3
"""Rows of a bias table that are not of two patches: CLS to patch, patch to CLS, CLS to itself."""
_LISTED = 4


@dataclass(frozen=True)
class Grid:
    """Rows and columns, the prefix tokens with a position, and whether a square was assumed."""

    size: Size | None
    prefix: int
    assumed: bool


def grid_of_positions(
    stored: Tensor,
    prefix: int,
    grids: Sequence[Size],
    path: Path,
    *,
    registers: int,
    stated_by: str,
) -> Grid:
    """The grid of a position embedding (1, tokens, width).

    ``grids`` are candidates, the most trusted first. A CLS token has a position of its own unless
    a candidate says otherwise; with ``registers`` either is usual.

    Raises:
        UsageError: The size that a user stated does not fit.
        CheckpointError: No candidate fits, and a square does not fit or may not be assumed.
    """
    if stored.ndim != 3:
        raise CheckpointError(f"{path}: pos_embed is {shape_of(stored)}, not (1, tokens, width)")
    count = int(stored.shape[1])
    # timm's models with registers store positions of patches only; others, of every token.
    prefixes = dict.fromkeys((0, prefix) if registers else (prefix, 0))
    for grid in grids:
        for own in prefixes:
            if grid.height * grid.width == count - own:
                return Grid(grid, own, assumed=False)
    if not stated_by:
        for own in prefixes if registers else [prefix]:
            side = math.isqrt(max(count - own, 0))
            if side and side * side == count - own:
                return Grid(Size(side, side), own, assumed=True)
    raise _unknown(path, count, prefix, grids, stated_by=stated_by)


def grid_of_biases(table: Tensor, grids: Sequence[Size], path: Path, *, stated_by: str) -> Grid:
    """The grid of a table of relative position biases, (distances + 3, heads).

    Raises:
        UsageError, CheckpointError: As ``grid_of_positions``.
    """
    distances = int(table.shape[0]) - _FOR_CLS
    for grid in grids:
        if (2 * grid.height - 1) * (2 * grid.width - 1) == distances:
            return Grid(grid, 1, assumed=False)
    side = math.isqrt(max(distances, 0))
    if not stated_by and side % 2 and side * side == distances:
        return Grid(Size((side + 1) // 2, (side + 1) // 2), 1, assumed=True)
    stored = f"{path}: its {distances} relative positions do not fit"
    if stated_by and grids:
        raise _not_fitting(f"{stored} the {grids[0]} grid of {stated_by}")
    raise CheckpointError(f"{stored} a square grid", _SAY_WHICH)


def _not_fitting(message: str) -> CheckpointError | UsageError:
    if "--model-arg" in message:
        hint = "stored positions are resized for each image; give the input size with --size"
        return UsageError(message, hint)
    return CheckpointError(message)


_SAY_WHICH = (
    "say which with --model-arg img-height=PIXELS --model-arg img-width=PIXELS, or name the model "
    "with --model"
)


def _unknown(
    path: Path, count: int, prefix: int, grids: Sequence[Size], *, stated_by: str
) -> CheckpointError | UsageError:
    stored = f"{path}: its {count} stored positions"
    if stated_by and grids:
        tokens = f" with {prefix} prefix tokens" if prefix else ""
        return _not_fitting(f"{stored} do not fit the {grids[0]} grid of {stated_by}{tokens}")
    fitting = [str(grid) for own in dict.fromkeys((prefix, 0)) for grid in _grids(count - own)]
    if not fitting:
        return CheckpointError(f"{stored} do not fit any grid with {prefix} prefix tokens")
    more = ", ..." if len(fitting) > _LISTED else ""
    return CheckpointError(
        f"{stored} fit several grids ({', '.join(fitting[:_LISTED])}{more})", _SAY_WHICH
    )


def _grids(count: int) -> Iterator[Size]:
    """Grids of so many patches, the most nearly square first, wide before tall."""
    for height in range(math.isqrt(max(count, 0)), 0, -1):
        if count % height == 0:
            yield Size(height, count // height)
            if height * height != count:
                yield Size(count // height, height)


def shape_of(tensor: Tensor) -> str:
    """``384x3x16x16``."""
    return "x".join(str(n) for n in tensor.shape)
