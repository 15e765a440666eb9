"""``patch``: the attention of chosen patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import Direction
from attnviz.domain.forms import choice
from attnviz.domain.kinds.common import (
    CELLS_OPTION,
    HEADS_OPTION,
    LAYER,
    OVERLAY_ONLY,
    POINTS_OPTION,
)
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps
from attnviz.domain.options import option, switch

if TYPE_CHECKING:
    from attnviz.domain.arrays import FloatArray, IntArray
    from attnviz.domain.kinds.kind import Arrays, Row


@dataclass(frozen=True)
class PatchRequest(CommandRequest):
    """The attention of chosen patches: ``cells`` (row, column), ``points`` (x, y) in pixels.

    Without either: the centre patch of each quadrant. ``direction``: of or to these patches.
    """

    layer: int = LAYER()
    heads: tuple[int, ...] | None = HEADS_OPTION()
    cells: tuple[tuple[int, int], ...] = CELLS_OPTION(
        "A patch by its row and column in the grid, from 0; repeatable."
    )
    points: tuple[tuple[float, float], ...] = POINTS_OPTION(
        "A patch by a pixel of the original image; repeatable."
    )
    each_head: bool = switch("A map of every head instead of their mean.")
    direction: Direction = option(
        Direction.FROM,
        choice(Direction),
        "What the patches look at (from), or which patches look at them (to).",
    )
    overlay_only: bool = OVERLAY_ONLY()

    @property
    def first_overlay(self) -> str:
        """``query1``, or its first head."""
        return f"query1-head{self.heads[0] if self.heads else 0}" if self.each_head else "query1"

    @property
    def can_follow(self) -> bool:
        """Whether it looks from patches that can move from frame to frame."""
        return True


@dataclass(frozen=True, eq=False)
class PatchMaps(Maps):
    """Attention of chosen patches.

    attention (Q, H, gh, gw), prefix (Q, H, P), entropy (Q, H), cells (Q, 2) as (row, column).

    With the direction ``to`` attention and prefix are what the other tokens give to the patch: its
    column of the matrix. Columns do not sum to 1; received (Q, H), in place of entropy, is the sum.
    """

    attention: FloatArray
    prefix: FloatArray
    entropy: FloatArray | None
    cells: IntArray
    layer: int
    heads: tuple[int, ...]
    received: FloatArray | None = None

    def __post_init__(self) -> None:
        queries = int(self.cells.shape[0])
        check_shape("PatchMaps", "cells", self.cells, (queries, 2))
        both = (queries, len(self.heads))
        check_shape("PatchMaps", "attention", self.attention, (*both, None, None))
        check_shape("PatchMaps", "prefix", self.prefix, (*both, None))
        for name in ("entropy", "received"):
            if getattr(self, name) is not None:
                check_shape("PatchMaps", name, getattr(self, name), both)

    @property
    def tokens(self) -> int:
        """N: prefix tokens and patches."""
        height, width = self.attention.shape[2:]
        return int(self.prefix.shape[2] + height * width)

    def arrays(self) -> Arrays:
        """Arrays attention (Q, H, gh, gw), prefix (Q, H, P), entropy (Q, H), cells (Q, 2).

        Also layer () and heads (H,). With the direction ``to`` received (Q, H) in place of entropy.
        """
        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            attention=self.attention,
            prefix=self.prefix,
            entropy=self.entropy,
            received=self.received,
            cells=self.cells,
            layer=self.layer,
            heads=self.heads,
        )

    def rows(self) -> tuple[Row, ...]:
        """One row a query patch and head."""
        return tuple(
            {"row": int(row), "column": int(column), "head": head, **numbers}
            for index, (row, column) in enumerate(self.cells)
            for head, numbers in zip(self.heads, self._numbers(index), strict=True)
        )

    def _numbers(self, index: int) -> list[Row]:
        """The numbers of one patch, a head each."""
        from attnviz.domain.row_statistics import column_rows, map_rows

        maps, prefix = self.attention[index], self.prefix[index]
        if self.received is not None:
            return column_rows(maps, prefix, self.received[index])
        assert self.entropy is not None
        return map_rows(maps, prefix, self.entropy[index], None)


PATCH = Kind(
    name="patch",
    help="""Attention of single patches, in one layer.

    Each patch marked on the image, and its map: the mean over heads, or every head. With
    --direction to, which patches look at it.

    Example: attnviz patch photo.jpg --at 3,7 --xy 240,120
    """,
    request=PatchRequest,
    maps=PatchMaps,
    compute="attnviz.attention.maps:patch_maps",
    draw="attnviz.figures.patch:draw_patch",
    overlays="attnviz.figures.overlays:patch_overlays",
    computed_with=("cells",),
    drawn_with=("each_head",),
)
