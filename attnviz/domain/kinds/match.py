"""``match``: which patches of two images correspond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import Descriptor, take_choices
from attnviz.domain.forms import INDEX, PAIRS, PATH, SHARE, choice
from attnviz.domain.kinds.common import CELLS_OPTION, POINTS_OPTION
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps, Sidecar
from attnviz.domain.options import option, switch
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain.arrays import BoolArray, FloatArray, IntArray
    from attnviz.domain.image import FigureImage
    from attnviz.domain.kinds.kind import Arrays, Row

ALL: Literal["all"] = "all"
"""Every pair of mutual nearest neighbours."""


@dataclass(frozen=True)
class MatchRequest(CommandRequest):
    """Pairs of patches of an image and the image ``like``; ``cells`` and ``points`` of the first.

    Raises:
        UsageError: No second image.
    """

    like: Path | None = option(
        None,
        PATH,
        "The second image.",
        metavar="IMAGE",
        show="the last input",
    )
    layer: int | None = option(
        None,
        INDEX,
        "Layer (block), from 0; -1 is the last, -2 the one before.",
        show="at three quarters of the depth",
    )
    part: Descriptor = option(
        Descriptor.KEY,
        choice(Descriptor),
        "What describes a patch: its query, key or value with all heads joined, or its token as "
        "the layer gives it.",
    )
    pairs: int | Literal["all"] = option(
        10, PAIRS, "How many pairs, spread over what they show; or all."
    )
    threshold: float | None = option(
        None,
        SHARE,
        "Only patches inside the mass mask of each image: the fewest that hold this share of the "
        "attention of the last layer.",
        show="all patches",
    )
    cells: tuple[tuple[int, int], ...] = CELLS_OPTION(
        "Instead of mutual pairs, what is nearest to a patch of the first image, by its row and "
        "column in the grid, from 0; repeatable.",
        show="mutual nearest neighbours",
    )
    points: tuple[tuple[float, float], ...] = POINTS_OPTION(
        "The same for a patch by a pixel of the original image; repeatable."
    )
    csv: bool = switch("Also a table of the pairs, in pixels of both original images.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.like is None:
            raise UsageError(
                "match needs two images", "attnviz match first.jpg second.jpg, or --like SECOND.jpg"
            )
        if self.pairs != ALL and self.pairs < 1:
            raise UsageError(f"{self.pairs} pairs are not a choice", "give 1 or more, or all")

    @property
    def second_image(self) -> Path | None:
        """The image to compare with."""
        return self.like


@dataclass(frozen=True, eq=False)
class MatchMaps(Maps):
    """M pairs of patches of an image and a second one, ``like``, by falling ``attention``.

    asked: whether they are those of patches that were asked for instead, in that order.

    cells, like_cells (M, 2): (row, column) in the two grids. xy, like_xy (M, 2): their middles, in
    pixel edges of the two original images. cosine (M,) of their descriptors, -1 to 1. mutual (M,):
    whether each is the nearest of the other. attention (M,): the mean of that to both patches in
    the last layer.

    mutual_cosine (K,): of all mutual nearest neighbours, inside the masks if there are any. best
    (gh, gw), like_best (gh', gw'): the cosine of each patch to the nearest of the other image.
    """

    cells: IntArray
    like_cells: IntArray
    xy: FloatArray
    like_xy: FloatArray
    cosine: FloatArray
    mutual: BoolArray
    attention: FloatArray
    mutual_cosine: FloatArray
    best: FloatArray
    like_best: FloatArray
    layer: int
    like: FigureImage
    part: Descriptor = Descriptor.KEY
    threshold: float | None = None
    asked: bool = False

    def __post_init__(self) -> None:
        take_choices(self)
        pairs = int(self.cells.shape[0])
        for name in ("cells", "like_cells", "xy", "like_xy"):
            check_shape("MatchMaps", name, getattr(self, name), (pairs, 2))
        for name in ("cosine", "mutual", "attention"):
            check_shape("MatchMaps", name, getattr(self, name), (pairs,))
        check_shape("MatchMaps", "mutual_cosine", self.mutual_cosine, (None,))
        check_shape("MatchMaps", "best", self.best, (None, None))
        check_shape("MatchMaps", "like_best", self.like_best, tuple(self.like.geometry.grid))

    def arrays(self) -> Arrays:
        """Arrays cells, like_cells, xy, like_xy (M, 2), cosine, mutual, attention (M,), layer ().

        Also mutual_cosine (K,), best (gh, gw), and like_best in the grid of the second image.
        """
        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            cells=self.cells,
            like_cells=self.like_cells,
            xy=self.xy,
            like_xy=self.like_xy,
            cosine=self.cosine,
            mutual=self.mutual,
            attention=self.attention,
            mutual_cosine=self.mutual_cosine,
            best=self.best,
            like_best=self.like_best,
            layer=self.layer,
        )

    def pair_rows(self) -> tuple[Row, ...]:
        """As ``rows``, with the cells of the two grids and the attention."""
        columns = zip(self.cells.tolist(), self.like_cells.tolist(), self.attention, strict=True)
        return tuple(
            {
                **row,
                "row": cell[0],
                "column": cell[1],
                "like_row": like_cell[0],
                "like_column": like_cell[1],
                "attention": float(attention),
            }
            for row, (cell, like_cell, attention) in zip(self.rows(), columns, strict=True)
        )

    def rows(self) -> tuple[Row, ...]:
        """One row a pair: pixels of the two originals, the cosine, and whether it is mutual."""
        columns = zip(self.xy, self.like_xy, self.cosine, self.mutual, strict=True)
        return tuple(
            {
                "pair": number,
                "x": float(x),
                "y": float(y),
                "like_x": float(like_x),
                "like_y": float(like_y),
                "cosine": float(cosine),
                "mutual": int(mutual),
            }
            for number, ((x, y), (like_x, like_y), cosine, mutual) in enumerate(columns, 1)
        )


MATCH = Kind(
    name="match",
    help="""Which patches of two images correspond, by mutual nearest neighbours.

    Ten pairs spread over what they show, as numbered points joined by lines, and the cosines of all
    pairs as a histogram. The last image is the second of each pair.

    Example: attnviz match photo.jpg second.jpg --threshold 0.6
    """,
    request=MatchRequest,
    maps=MatchMaps,
    compute="attnviz.attention.match:match_maps",
    draw="attnviz.figures.match:draw_match",
    check="attnviz.attention.checks:check_match",
    computed_with=("geometries", "reference"),
    refer="attnviz.attention.match:match_reference",
    pair=True,
    sidecars={"csv": Sidecar("csv", "attnviz.stages.sidecars:write_pairs")},
    unused=("alpha", "cmap", "scale", "interpolation"),
)
