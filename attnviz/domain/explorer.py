"""What an explorer page is made from: the queries and keys behind the attention of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_dtype, check_shape
from attnviz.domain.choices import DEFAULT_OUT
from attnviz.domain.forms import INDICES, PATH
from attnviz.domain.options import option, switch

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from attnviz.domain.arrays import FloatArray
    from attnviz.domain.requests import InputRequest, ModelRequest


@dataclass(frozen=True, eq=False)
class RelativeBias:
    """What a layer adds to its logits, by the relative position of two patches (BEiT).

    offsets (H, 2 gh - 1, 2 gw - 1): of query patch (r, c) and key patch (r', c') the entry
    (r - r' + gh - 1, c - c' + gw - 1). prefix_rows (H, P, N): of the prefix tokens as queries.
    prefix_columns (H, gh * gw, P): of patches as queries and prefix tokens as keys.
    """

    offsets: FloatArray
    prefix_rows: FloatArray
    prefix_columns: FloatArray

    def __post_init__(self) -> None:
        heads = int(self.offsets.shape[0])
        check_shape("RelativeBias", "prefix_rows", self.prefix_rows, (heads, None, None))
        check_shape("RelativeBias", "prefix_columns", self.prefix_columns, (heads, None, None))

    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The three arrays, in the order in which a page holds them."""
        return self.offsets, self.prefix_rows, self.prefix_columns


@dataclass(frozen=True, eq=False)
class QueryKeys:
    """The queries and keys of the asked layers of one image, as the model uses them.

    query, key (L, H, N, d) float32, after norms and rotary embedding. query is multiplied by the
    model's scale already: attention of layer l, head h is softmax(query[l, h] key[l, h]^T + bias).
    layers: the model's index of each entry. biases: of each layer, None where it adds none.
    """

    query: FloatArray
    key: FloatArray
    layers: tuple[int, ...]
    biases: tuple[RelativeBias | None, ...]

    def __post_init__(self) -> None:
        check_shape("QueryKeys", "query", self.query, (len(self.layers), None, None, None))
        check_shape("QueryKeys", "key", self.key, tuple(self.query.shape))
        check_dtype("QueryKeys", "query", self.query, "float32")
        check_dtype("QueryKeys", "key", self.key, "float32")


@dataclass(frozen=True)
class ExploreRequest:
    """One image or two, the layers of the page (None: all), and where the page goes.

    ``file`` None: ``STEM.explore.html`` in the default folder.
    """

    model: ModelRequest
    inputs: InputRequest
    layers: tuple[int, ...] | None = option(
        None,
        INDICES,
        "Layers to keep in the page, from 0, e.g. -1 or 0,5,11 or 6-11.",
        show="all",
    )
    rollout: bool = switch(
        "Also the rollout up to each of these layers, which takes every layer's matrix.",
        on=True,
        flags=("--rollout/--no-rollout",),
    )
    like: Path | None = option(
        None,
        PATH,
        "A second image: hover a patch of one, and what is similar in the other lights up, by the "
        "cosine of keys.",
        metavar="IMAGE",
        show="the second argument, if there is one",
    )
    file: Path | None = option(
        None,
        PATH,
        "The page to write; an existing one is replaced.",
        name="out",
        flags=("--out", "-o"),
        metavar="FILE",
        show=f"{DEFAULT_OUT}/STEM.explore.html",
        recorded=False,
    )


@dataclass(frozen=True, eq=False)
class LayerFactors:
    """One layer's queries and keys, rotated and rounded: q' = step * query, k' = step * key.

    softmax(q' k'^T + bias) is the layer's attention. query, key (R, H, N) int16, at least -32767,
    R = min(N, d) columns, those of the largest singular values first. bias: None for none.
    """

    query: NDArray[np.int16]
    key: NDArray[np.int16]
    step: float
    bias: RelativeBias | None = None

    def __post_init__(self) -> None:
        check_shape("LayerFactors", "query", self.query, (None, None, None))
        check_shape("LayerFactors", "key", self.key, tuple(self.query.shape))
        check_dtype("LayerFactors", "query", self.query, "int16")
        check_dtype("LayerFactors", "key", self.key, "int16")


@dataclass(frozen=True, eq=False)
class PairFactors:
    """The unit vectors of the patches of two images in one layer, rotated and rounded.

    values (R, n + m) int16, the patches of the first image before those of the second; the dot
    product of two columns times step^2 is their cosine.
    """

    values: NDArray[np.int16]
    step: float

    def __post_init__(self) -> None:
        check_shape("PairFactors", "values", self.values, (None, None))
        check_dtype("PairFactors", "values", self.values, "int16")
