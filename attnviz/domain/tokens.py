"""What the commands that show every token compute: whole matrices, and queries, keys, values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape

if TYPE_CHECKING:
    from attnviz.domain.arrays import FloatArray, IntArray
    from attnviz.domain.choices import Part
    from attnviz.domain.geometry import Size


@dataclass(frozen=True, eq=False)
class MatrixMaps:
    """The attention matrices of the chosen heads of one layer, before and after softmax.

    ``cell_logits`` and ``cell_attention`` (K, n, n) are of the heads ``drawn``; their means over
    all H heads are ``mean_logits`` and ``mean_attention`` (n, n). A cell is the mean over a block
    of tokens: cell (i, j) over queries edges[i] to edges[i + 1] and keys edges[j] to edges[j + 1],
    with edges (n + 1,). A prefix token is a block of its own; no block holds parts of two rows of
    patches. Where all blocks are single tokens, n = N.

    token_entropy (H, N): of every row, nats. to_cls (H, gh, gw): the attention of every patch to
    CLS, None without a class token. logit_range (H, 2): the lowest and the highest logit.
    logits, attention (H, N, N): the whole matrices, None where they were not asked for.
    """

    cell_logits: FloatArray
    cell_attention: FloatArray
    mean_logits: FloatArray
    mean_attention: FloatArray
    edges: IntArray
    token_entropy: FloatArray
    to_cls: FloatArray | None
    logit_range: FloatArray
    grid: Size
    layer: int
    heads: tuple[int, ...]
    drawn: tuple[int, ...]
    logits: FloatArray | None = None
    attention: FloatArray | None = None

    def __post_init__(self) -> None:
        count, cells = len(self.heads), int(self.edges.shape[0]) - 1
        for name in ("cell_logits", "cell_attention"):
            check_shape("MatrixMaps", name, getattr(self, name), (len(self.drawn), cells, cells))
        for name in ("mean_logits", "mean_attention"):
            check_shape("MatrixMaps", name, getattr(self, name), (cells, cells))
        check_shape("MatrixMaps", "token_entropy", self.token_entropy, (count, self.tokens))
        check_shape("MatrixMaps", "logit_range", self.logit_range, (count, 2))
        if self.to_cls is not None:
            check_shape("MatrixMaps", "to_cls", self.to_cls, (count, *self.grid))
        for name in ("logits", "attention"):
            if getattr(self, name) is not None:
                whole = (count, self.tokens, self.tokens)
                check_shape("MatrixMaps", name, getattr(self, name), whole)

    @property
    def tokens(self) -> int:
        """N: prefix tokens and patches."""
        return int(self.edges[-1])

    @property
    def prefix(self) -> int:
        """P."""
        return self.tokens - self.grid.height * self.grid.width


@dataclass(frozen=True, eq=False)
class QkvMaps:
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
