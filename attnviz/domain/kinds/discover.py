"""``discover``: the object of an image, found without labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import DiscoverMethod, Part, take_choices
from attnviz.domain.forms import choice
from attnviz.domain.kinds.common import LAYER
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps
from attnviz.domain.options import option

if TYPE_CHECKING:
    from attnviz.domain.arrays import BoolArray, FloatArray, IntArray
    from attnviz.domain.geometry import Box
    from attnviz.domain.kinds.kind import Arrays, Row


@dataclass(frozen=True)
class DiscoverRequest(CommandRequest):
    """The object by ``method``, from the keys (or ``part``) of a layer, all heads joined."""

    method: DiscoverMethod = option(
        DiscoverMethod.TOKENCUT,
        choice(DiscoverMethod),
        "How the object is found: the patch like the fewest others, a cut of the graph of similar "
        "patches, or the Laplacian's eigenvectors.",
    )
    layer: int = LAYER()
    part: Part = option(
        Part.KEY, choice(Part), "Which vectors of the patches: queries, keys or values."
    )


@dataclass(frozen=True, eq=False)
class DiscoverMaps(Maps):
    """The object of an image, and what a method found it by.

    mask (gh, gw) bool: the object. seed: the (row, column) of the patch that it grew from. box:
    around the mask, in pixel edges of the original image and clipped to it.

    Of LOST: degree (gh, gw) int64, the number of patches with a positive dot product; similarity
    (gh, gw), the sum of dot products with the seed and what is like it, above 0 on the object. Of
    the others: eigenvectors (K, gh, gw) with v^T D v = 1, positive on the object's side, and
    eigenvalues (K,), 0 to 2; K is 1 for TokenCut and at most 5 for spectral.
    """

    mask: BoolArray
    seed: tuple[int, int]
    box: Box
    method: DiscoverMethod
    layer: int
    part: Part = Part.KEY
    degree: IntArray | None = None
    similarity: FloatArray | None = None
    eigenvectors: FloatArray | None = None
    eigenvalues: FloatArray | None = None

    def __post_init__(self) -> None:
        take_choices(self)
        check_shape("DiscoverMaps", "mask", self.mask, (None, None))
        grid = tuple(self.mask.shape)
        if self.similarity is not None and self.degree is not None:
            check_shape("DiscoverMaps", "similarity", self.similarity, grid)
            check_shape("DiscoverMaps", "degree", self.degree, grid)
        elif self.eigenvectors is not None and self.eigenvalues is not None:
            check_shape("DiscoverMaps", "eigenvectors", self.eigenvectors, (None, *grid))
            count = int(self.eigenvectors.shape[0])
            check_shape("DiscoverMaps", "eigenvalues", self.eigenvalues, (count,))
        else:
            raise ValueError("DiscoverMaps needs degree and similarity, or eigenvectors and values")

    @property
    def object_map(self) -> FloatArray:
        """(gh, gw): the similarity or the first eigenvector, higher on the object."""
        if self.similarity is not None:
            return self.similarity
        assert self.eigenvectors is not None  # __post_init__ has seen to it
        first: FloatArray = self.eigenvectors[0]
        return first

    @property
    def share(self) -> float:
        """The object's share of the patches."""
        return float(self.mask.mean())

    def arrays(self) -> Arrays:
        """Arrays mask (gh, gw), seed (2,), box (4,), layer ().

        box: left, top, right, bottom in pixel edges of the original image. Of LOST also degree and
        similarity (gh, gw), of the others eigenvectors (K, gh, gw) and eigenvalues (K,).
        """
        import numpy as np

        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            mask=self.mask,
            seed=self.seed,
            box=np.array(self.box.ltrb, np.float32),
            layer=self.layer,
            degree=self.degree,
            similarity=self.similarity,
            eigenvectors=self.eigenvectors,
            eigenvalues=self.eigenvalues,
        )

    def rows(self) -> tuple[Row, ...]:
        """One row: the seed's row and column, the box in pixels, the object's share of patches."""
        left, top, right, bottom = self.box.ltrb
        return (
            {
                "method": self.method.value,
                "seed_row": self.seed[0],
                "seed_column": self.seed[1],
                "left": left,
                "top": top,
                "right": right,
                "bottom": bottom,
                "share": self.share,
            },
        )


DISCOVER = Kind(
    name="discover",
    help="""The object of an image, found without labels: a mask and a box from the last keys.

    LOST grows it from the patch that is like the fewest others; TokenCut cuts the graph of similar
    patches in two; spectral takes the smaller side of the Laplacian's first eigenvector.

    Example: attnviz discover photo.jpg --method lost
    """,
    request=DiscoverRequest,
    maps=DiscoverMaps,
    compute="attnviz.attention.discover:discover_maps",
    draw="attnviz.figures.discover:draw_discover",
    check="attnviz.attention.checks:check_layer",
    computed_with=("geometries",),
    extra_bytes="attnviz.attention.memory:discover_bytes",
    unused=("alpha",),
)
