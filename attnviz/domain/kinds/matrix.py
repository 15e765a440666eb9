"""``matrix``: the whole attention matrix of a layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import Norm
from attnviz.domain.forms import choice
from attnviz.domain.kinds.common import HEADS_OPTION, LAYER, OVERLAY_ONLY
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps
from attnviz.domain.options import option

if TYPE_CHECKING:
    from attnviz.domain.arrays import FloatArray, IntArray
    from attnviz.domain.geometry import Size
    from attnviz.domain.kinds.kind import Arrays, Row


@dataclass(frozen=True)
class MatrixRequest(CommandRequest):
    """The attention matrices of a layer, before and after softmax.

    ``whole``: also hold every value, and not only the means that are drawn.
    """

    layer: int = LAYER()
    heads: tuple[int, ...] | None = HEADS_OPTION()
    norm: Norm = option(
        Norm.LOG,
        choice(Norm),
        "Colours after softmax: by the logarithm of the weight, or linear.",
    )
    overlay_only: bool = OVERLAY_ONLY()
    whole: bool = False

    def keeping_data(self, *, save_data: bool) -> Self:
        """The request of a run that also saves the arrays: the whole matrices."""
        return replace(self, whole=save_data)


@dataclass(frozen=True, eq=False)
class MatrixMaps(Maps):
    """The attention matrices of the chosen heads of one layer, before and after softmax.

    ``cell_logits`` and ``cell_attention`` (K, n, n) are of the heads ``drawn``; their means over
    all H heads are ``mean_logits`` and ``mean_attention`` (n, n). A cell is the mean over a block
    of tokens: cell (i, j) over queries edges[i] to edges[i + 1] and keys edges[j] to edges[j + 1],
    with edges (n + 1,). A prefix token is a block of its own; no block holds parts of two rows of
    patches. Where all blocks are single tokens, n = N.

    token_entropy (H, N): of every row, nats. to_cls (H, gh, gw): the attention of every patch to
    CLS, None without a CLS token. received (H, N): the attention that every token receives from all
    tokens, the sum of its column. logit_range (H, 2): the lowest and the highest logit.
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
    received: FloatArray | None = None

    def __post_init__(self) -> None:
        count, cells = len(self.heads), int(self.edges.shape[0]) - 1
        for name in ("cell_logits", "cell_attention"):
            check_shape("MatrixMaps", name, getattr(self, name), (len(self.drawn), cells, cells))
        for name in ("mean_logits", "mean_attention"):
            check_shape("MatrixMaps", name, getattr(self, name), (cells, cells))
        check_shape("MatrixMaps", "token_entropy", self.token_entropy, (count, self.tokens))
        if self.received is not None:
            check_shape("MatrixMaps", "received", self.received, (count, self.tokens))
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

    @property
    def patch_entropy(self) -> FloatArray:
        """The entropy of the patches' rows, mean over heads: (gh, gw)."""
        of_patches: FloatArray = self.token_entropy.mean(axis=0)[self.prefix :]
        return of_patches.reshape(self.grid)

    def arrays(self) -> Arrays:
        """Arrays token_entropy, received (H, N), layer (), heads (H,).

        With a CLS token to_cls (H, gh, gw). Also logits, attention (H, N, N) where they are held.
        """
        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            token_entropy=self.token_entropy,
            received=self.received,
            layer=self.layer,
            logits=self.logits,
            attention=self.attention,
            to_cls=self.to_cls,
            heads=self.heads,
        )

    def rows(self) -> tuple[Row, ...]:
        """One row a head: entropy over the tokens' rows, the logits' range, the mean map to CLS."""
        from attnviz.domain.row_statistics import sink_rows, uniform_entropy

        limit = uniform_entropy(self.tokens)
        rows: list[Row] = []
        for index, head in enumerate(self.heads):
            entropies = self.token_entropy[index]
            row: dict[str, Any] = {
                "layer": self.layer,
                "head": head,
                "entropy_mean": float(entropies.mean()),
                "entropy_share": float(entropies.mean()) / limit if limit else 0.0,
                "entropy_min": float(entropies.min()),
                "entropy_max": float(entropies.max()),
                "logit_min": float(self.logit_range[index, 0]),
                "logit_max": float(self.logit_range[index, 1]),
            }
            if self.to_cls is not None:
                row["to_cls_mean"] = float(self.to_cls[index].mean())
            if self.received is not None:
                row |= sink_rows(self.received[[index]])[0]
            rows.append(row)
        return tuple(rows)


MATRIX = Kind(
    name="matrix",
    help="""The whole attention matrix of a layer, before and after softmax.

    The mean over heads, the entropy of every token as a curve and as a map, the patches' attention
    to CLS, the attention that every patch receives, and single heads: those that --heads names, or
    four from the lowest to the highest entropy. Large matrices are drawn as means over blocks of
    tokens. --save-data keeps them whole.

    Example: attnviz matrix photo.jpg --layer 8 --heads 0,3
    """,
    request=MatrixRequest,
    maps=MatrixMaps,
    compute="attnviz.attention.matrix:matrix_maps",
    draw="attnviz.figures.matrix:draw_attention_matrix",
    overlays="attnviz.figures.overlays:matrix_overlays",
    drawn_with=("norm",),
    extra_bytes="attnviz.attention.memory:matrix_bytes",
)
