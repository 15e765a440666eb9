"""Corresponding patches of each image of a batch and a second image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from attnviz.attention.arrays import as_array, layout_of
from attnviz.attention.blocks import patch_mean_row
from attnviz.attention.capture import AttentionCall, AttentionModel, capture
from attnviz.attention.checks import match_layer
from attnviz.attention.compute import query_cells
from attnviz.attention.correspondence import nearest, spread
from attnviz.attention.descriptors import joined_patches
from attnviz.attention.features import output_tokens
from attnviz.attention.units import unit_vectors
from attnviz.domain import Descriptor, FigureImage, FitGeometry, MatchMaps, Part, Size
from attnviz.domain.kinds.match import ALL
from attnviz.domain.mass_mask import mass_mask

if TYPE_CHECKING:
    from attnviz.domain import BoolArray, FloatArray, IntArray
    from attnviz.domain.kinds import MatchRequest


@dataclass(frozen=True, eq=False)
class Described:
    """The patches of an image: unit vectors (n, D), and the attention to each (n,)."""

    vectors: FloatArray
    attention: FloatArray


@dataclass(frozen=True, eq=False)
class MatchReference:
    """The second image, and its patches."""

    image: FigureImage
    patches: Described


def match_reference(
    model: AttentionModel, batch: Tensor, image: FigureImage, request: MatchRequest
) -> MatchReference:
    """What ``match_maps`` needs of the second image; batch: (1, 3, h, w)."""
    return MatchReference(image, describe(model, batch, request)[0])


def match_maps(
    model: AttentionModel,
    batch: Tensor,
    request: MatchRequest,
    geometries: Sequence[FitGeometry],
    reference: MatchReference,
) -> list[MatchMaps]:
    """The pairs of patches of each image of a (B, 3, h, w) batch and the second image.

    Raises:
        UsageError: Layer out of range.
        ImageError: A chosen patch lies outside the image.
        AttentionError: A vector is not finite, or the attention breaks an invariant.
    """
    described = describe(model, batch, request)
    return [
        _matched(patches, geometry, request, reference, match_layer(model.info, request))
        for patches, geometry in zip(described, geometries, strict=True)
    ]


def describe(model: AttentionModel, batch: Tensor, request: MatchRequest) -> list[Described]:
    """The patches of each image of a batch: descriptors of a layer, attention of the last one.

    Attention is the mean over heads of that of CLS; without a CLS token, of that of all patches.
    """
    info = model.info
    layer, last, prefix = match_layer(info, request), info.depth - 1, layout_of(model, batch).prefix
    vectors: list[FloatArray] = []
    attention: list[FloatArray] = []

    def handle(call: AttentionCall) -> None:
        if call.layer == layer and request.part is not Descriptor.TOKENS:
            vectors.extend(joined_patches(call, Part(request.part), prefix))
        if call.layer == last:
            attention.extend(_attention(call, prefix, has_cls=info.has_cls))

    capture(model, batch, last, handle)
    if request.part is Descriptor.TOKENS:
        tokens, _ = output_tokens(model, batch, layer)
        vectors = list(tokens[:, prefix:])
    return [Described(unit_vectors(v), a) for v, a in zip(vectors, attention, strict=True)]


def _attention(call: AttentionCall, prefix: int, *, has_cls: bool) -> list[FloatArray]:
    """Attention to each patch (n,), for each image of a batch."""
    rows: Iterable[Tensor]
    if has_cls:
        rows = call.rows(call.first_token)[:, :, 0]  # B, H, N
    else:
        images = range(call.query.shape[0])
        rows = (patch_mean_row(call.of_image(image), prefix) for image in images)
    return [as_array(row.mean(dim=0)[prefix:]) for row in rows]


def _matched(
    patches: Described,
    geometry: FitGeometry,
    request: MatchRequest,
    reference: MatchReference,
    layer: int,
) -> MatchMaps:
    other, grid = reference.patches, geometry.grid
    like_grid = reference.image.geometry.grid
    neighbours = nearest(patches.vectors, other.vectors)
    allowed = _allowed(patches, request.threshold)
    allowed_there = _allowed(other, request.threshold)[neighbours.there]
    mutual = np.flatnonzero(neighbours.mutual & allowed & allowed_there)
    rank: FloatArray = (patches.attention + other.attention[neighbours.there]) / np.float32(2)
    mutual = mutual[np.argsort(-rank[mutual], kind="stable")]
    chosen, asked = mutual, bool(request.cells or request.points)
    if asked:
        cells = np.asarray(query_cells(request, geometry), np.int64)
        chosen = cells[:, 0] * grid.width + cells[:, 1]
    elif request.pairs != ALL and len(mutual):
        first, second = patches.vectors[mutual], other.vectors[neighbours.there[mutual]]
        chosen = mutual[spread(first, second, rank[mutual], request.pairs)]
    return MatchMaps(
        cells=_cells(chosen, grid),
        like_cells=_cells(neighbours.there[chosen], like_grid),
        xy=_centres(chosen, geometry),
        like_xy=_centres(neighbours.there[chosen], reference.image.geometry),
        cosine=neighbours.best[chosen],
        mutual=neighbours.mutual[chosen],
        attention=rank[chosen],
        mutual_cosine=neighbours.best[mutual],
        best=neighbours.best.reshape(grid),
        like_best=neighbours.best_back.reshape(like_grid),
        layer=layer,
        like=reference.image,
        part=request.part,
        threshold=request.threshold,
        asked=asked,
    )


def _allowed(patches: Described, threshold: float | None) -> BoolArray:
    if threshold is None:
        return np.ones(len(patches.vectors), np.bool_)
    return mass_mask(patches.attention, threshold)


def _cells(index: IntArray, grid: Size) -> IntArray:
    return np.stack([index // grid.width, index % grid.width], axis=1).astype(np.int64)


def _centres(index: IntArray, geometry: FitGeometry) -> FloatArray:
    """The middle (x, y) of cells, in pixel edges of the original image, (M, 2)."""
    height, width = geometry.cell_size
    cells = _cells(index, geometry.grid).astype(np.float64) + 0.5
    x = geometry.region.left + cells[:, 1] * width
    y = geometry.region.top + cells[:, 0] * height
    return np.stack([x, y], axis=1).astype(np.float32)
