"""``patch``: the attention of chosen patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.kinds.common import CELLS_OPTION, HEADS_OPTION, LAYER, POINTS_OPTION
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps
from attnviz.domain.options import switch

if TYPE_CHECKING:
    from attnviz.domain.arrays import FloatArray, IntArray
    from attnviz.domain.kinds.kind import Arrays, Row


@dataclass(frozen=True)
class PatchRequest(CommandRequest):
    """The attention of chosen patches: ``cells`` (row, column), ``points`` (x, y) in pixels.

    Without either: the centre patch of each quadrant.
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


@dataclass(frozen=True, eq=False)
class PatchMaps(Maps):
    """Attention of chosen patches.

    attention (Q, H, gh, gw), prefix (Q, H, P), entropy (Q, H), cells (Q, 2) as (row, column).
    """

    attention: FloatArray
    prefix: FloatArray
    entropy: FloatArray
    cells: IntArray
    layer: int
    heads: tuple[int, ...]

    def __post_init__(self) -> None:
        queries = int(self.cells.shape[0])
        check_shape("PatchMaps", "cells", self.cells, (queries, 2))
        both = (queries, len(self.heads))
        check_shape("PatchMaps", "attention", self.attention, (*both, None, None))
        check_shape("PatchMaps", "prefix", self.prefix, (*both, None))
        check_shape("PatchMaps", "entropy", self.entropy, both)

    @property
    def tokens(self) -> int:
        """N: prefix tokens and patches."""
        height, width = self.attention.shape[2:]
        return int(self.prefix.shape[2] + height * width)

    def arrays(self) -> Arrays:
        """Arrays attention (Q, H, gh, gw), prefix (Q, H, P), entropy (Q, H), cells (Q, 2).

        Also layer () and heads (H,).
        """
        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            attention=self.attention,
            prefix=self.prefix,
            entropy=self.entropy,
            cells=self.cells,
            layer=self.layer,
            heads=self.heads,
        )

    def rows(self) -> tuple[Row, ...]:
        """One row a query patch and head."""
        from attnviz.domain.row_statistics import map_rows

        return tuple(
            {"row": int(row), "column": int(column), "head": head, **numbers}
            for index, (row, column) in enumerate(self.cells)
            for head, numbers in zip(
                self.heads,
                map_rows(self.attention[index], self.prefix[index], self.entropy[index], None),
                strict=True,
            )
        )


PATCH = Kind(
    name="patch",
    help="""Attention of single patches, in one layer.

    Each patch marked on the image, and its map: the mean over heads, or every head.

    Example: attnviz patch photo.jpg --at 3,7 --xy 240,120
    """,
    request=PatchRequest,
    maps=PatchMaps,
    compute="attnviz.attention.maps:patch_maps",
    draw="attnviz.figures.patch:draw_patch",
    computed_with=("cells",),
    drawn_with=("each_head",),
    unused=("alpha",),
)
