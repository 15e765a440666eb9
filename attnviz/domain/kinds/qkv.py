"""``qkv``: queries, keys and values of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import Part
from attnviz.domain.forms import choices
from attnviz.domain.kinds.common import HEADS_OPTION, LAYER, OVERLAY_ONLY
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps
from attnviz.domain.options import option
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain.arrays import FloatArray
    from attnviz.domain.kinds.kind import Arrays, Row


_NAMES = {Part.QUERY: "query", Part.KEY: "key", Part.VALUE: "value"}


@dataclass(frozen=True)
class QkvRequest(CommandRequest):
    """Queries, keys and values of a layer.

    Raises:
        UsageError: No part was named.
    """

    layer: int = LAYER()
    heads: tuple[int, ...] | None = HEADS_OPTION()
    parts: tuple[Part, ...] = option(
        tuple(Part),
        choices(Part),
        "Queries, keys or values; repeatable.",
        name="part",
        show="all three",
    )
    overlay_only: bool = OVERLAY_ONLY()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "parts", tuple(dict.fromkeys(map(Part, self.parts))))
        if not self.parts:
            raise UsageError("no part was named", "give q, k or v")

    @property
    def first_overlay(self) -> str:
        """``pca-k`` where keys are the first part."""
        return f"pca-{self.parts[0].value}"


@dataclass(frozen=True, eq=False)
class QkvMaps(Maps):
    """Queries, keys and values of the chosen heads of one layer, S parts of them.

    vectors (S, H, N, d): as the model hands them to attention, after its own norms and rotary
    embedding. norms (S, H, N): lengths of the vectors. components (S, H, gh, gw, 3): the patches'
    scores on the first three principal components of each head's patch vectors; explained
    (S, H, 3): their shares of the variance. joint_components (S, gh, gw, 3) and joint_explained
    (S, 3): the same for the vectors of all heads joined, (n, H * d).
    """

    vectors: FloatArray
    norms: FloatArray
    components: FloatArray
    explained: FloatArray
    joint_components: FloatArray
    joint_explained: FloatArray
    layer: int
    parts: tuple[Part, ...]
    heads: tuple[int, ...]

    def __post_init__(self) -> None:
        both = (len(self.parts), len(self.heads))
        grid = tuple(self.joint_components.shape[1:3])
        check_shape("QkvMaps", "vectors", self.vectors, (*both, None, None))
        check_shape("QkvMaps", "norms", self.norms, (*both, self.tokens))
        check_shape("QkvMaps", "components", self.components, (*both, *grid, 3))
        check_shape("QkvMaps", "explained", self.explained, (*both, 3))
        joint = (both[0], None, None, 3)
        check_shape("QkvMaps", "joint_components", self.joint_components, joint)
        check_shape("QkvMaps", "joint_explained", self.joint_explained, (both[0], 3))

    @property
    def tokens(self) -> int:
        """N: prefix tokens and patches."""
        return int(self.vectors.shape[2])

    @property
    def prefix(self) -> int:
        """P."""
        height, width = self.joint_components.shape[1:3]
        return int(self.tokens - height * width)

    @property
    def joint_norms(self) -> FloatArray:
        """(S, gh, gw): lengths of the patches' vectors of all heads joined."""
        squares: FloatArray = self.norms[..., self.prefix :].astype("float64") ** 2
        joined: FloatArray = (squares.sum(axis=1) ** 0.5).astype("float32")
        return joined.reshape(-1, *self.joint_components.shape[1:3])

    def arrays(self) -> Arrays:
        """Arrays layer (), heads (H,), and of each part shown six, here of the queries.

        query (H, N, d), query_norm (H, N), query_pca (H, gh, gw, 3), query_explained (H, 3), and
        over all heads joined query_pca_all (gh, gw, 3), query_explained_all (3,).
        """
        from attnviz.domain.kinds.common import given_arrays

        arrays = given_arrays(layer=self.layer)
        for index, part in enumerate(self.parts):
            name = _NAMES[part]
            arrays |= {
                name: self.vectors[index],
                f"{name}_norm": self.norms[index],
                f"{name}_pca": self.components[index],
                f"{name}_explained": self.explained[index],
                f"{name}_pca_all": self.joint_components[index],
                f"{name}_explained_all": self.joint_explained[index],
            }
        return arrays | given_arrays(heads=self.heads)

    def rows(self) -> tuple[Row, ...]:
        """One row a part and head, then one for the part's heads joined: shape, mean, deviation."""
        import numpy as np

        rows: list[Row] = []
        for index, part in enumerate(self.parts):
            vectors = self.vectors[index].astype(np.float64)  # H, N, d
            norms = np.sqrt((vectors**2).sum(axis=2))  # H, N
            count, tokens, width = vectors.shape
            for head, values, own, explained in zip(
                self.heads, vectors, norms, self.explained[index], strict=True
            ):
                rows.append(_vector_row(part, head, (tokens, width), values, own, explained))
            joined = np.sqrt((norms**2).sum(axis=0))  # N
            shape, ratios = (tokens, count * width), self.joint_explained[index]
            rows.append(_vector_row(part, "all", shape, vectors, joined, ratios))
        return tuple(rows)


def _vector_row(
    part: str,
    head: int | Literal["all"],
    shape: tuple[int, int],
    values: NDArray[Any],
    norms: NDArray[Any],
    explained: FloatArray,
) -> Row:
    return {
        "part": str(part),
        # Text in every row: a column of a table has one type.
        "head": str(head),
        "tokens": shape[0],
        "width": shape[1],
        "mean": float(values.mean()),
        "std": float(values.std()),
        "norm_mean": float(norms.mean()),
        "norm_max": float(norms.max()),
        "explained": float(explained.sum()),
    }


QKV = Kind(
    name="qkv",
    help="""Queries, keys and values of a layer, as the model hands them to attention.

    A page each: the first three principal components of the patches as colours on the image, of
    all heads joined and of each head, the norms of the vectors, and the matrices token by width.

    Example: attnviz qkv photo.jpg --layer 8 --part k
    """,
    request=QkvRequest,
    maps=QkvMaps,
    compute="attnviz.attention.qkv:qkv_maps",
    draw="attnviz.figures.qkv:draw_qkv",
    overlays="attnviz.figures.overlays:qkv_overlays",
)
