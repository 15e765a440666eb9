"""The object of each image of a batch, from the vectors of one layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attnviz.attention.choose import choose_layer
from attnviz.attention.descriptors import joined_vectors
from attnviz.attention.discovery import discover
from attnviz.domain import DiscoverMaps, FitGeometry
from attnviz.domain.geometry import box_around

if TYPE_CHECKING:
    from torch import Tensor

    from attnviz.attention.capture import AttentionModel
    from attnviz.domain.kinds import DiscoverRequest


def discover_maps(
    model: AttentionModel,
    batch: Tensor,
    request: DiscoverRequest,
    geometries: Sequence[FitGeometry],
) -> list[DiscoverMaps]:
    """The object that a method finds, for each image of a (B, 3, h, w) batch.

    geometries: of the images, for boxes in their own pixels.

    Raises:
        UsageError: Layer out of range.
        ImageError: A single patch.
        AttentionError: A vector is not finite.
    """
    layer = choose_layer(model.info, request.layer)
    results = []
    for vectors, geometry in zip(
        joined_vectors(model, batch, layer, request.part), geometries, strict=True
    ):
        found = discover(vectors, geometry.grid, request.method)
        rows, columns = (np.flatnonzero(found.mask.any(axis=axis)) for axis in (1, 0))
        box = box_around(
            geometry, (int(rows[0]), int(columns[0])), (int(rows[-1]), int(columns[-1]))
        )
        results.append(
            DiscoverMaps(
                mask=found.mask,
                seed=divmod(found.seed, geometry.grid.width),
                box=box,
                method=request.method,
                layer=layer,
                part=request.part,
                degree=found.degree,
                similarity=found.similarity,
                eigenvectors=found.eigenvectors,
                eigenvalues=found.eigenvalues,
            )
        )
    return results
