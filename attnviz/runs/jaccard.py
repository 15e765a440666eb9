"""How well attention segments objects: the score of the DINO paper's figure 4 (Caron et al. 2021).

Each map is reduced to its mass mask, the mask is enlarged to the image's own pixels, cell by cell,
and compared with the object's mask by the Jaccard index, |A and B| / |A or B|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.domain import DEFAULT_MASS
from attnviz.domain.mass_mask import cell_numbers, mass_mask, on_pixels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import BoolArray, FitGeometry, FloatArray, IntArray


@dataclass(frozen=True)
class ImageScores:
    """One image. Jaccard indices 0..1 of each head, of the mean over heads, and of the rollout.

    ``peak_on_object``: the object covers half or more of the highest cell of the mean map.
    """

    heads: tuple[float, ...]
    mean_map: float
    rollout: float
    peak_on_object: bool


def score_image(
    attention: FloatArray,
    rollout: FloatArray,
    geometry: FitGeometry,
    mask: BoolArray,
    threshold: float = DEFAULT_MASS,
) -> ImageScores:
    """Compare one image's maps with its object.

    attention: (H, gh, gw) raw, all heads of a layer. rollout: (gh, gw). mask: (height, width) bool
    of the original image. threshold: the share of the patches' attention that a mask holds.
    """
    cells = cell_numbers(geometry)
    mean = attention.mean(axis=0, dtype=np.float64)

    def index_of(values: Any) -> float:
        return jaccard(on_pixels(mass_mask(values, threshold), cells), mask)

    return ImageScores(
        heads=tuple(index_of(head) for head in attention),
        mean_map=index_of(mean),
        rollout=index_of(rollout),
        peak_on_object=_coverage(mask, geometry, cells, int(mean.argmax())) >= 0.5,
    )


def jaccard(left: BoolArray, right: BoolArray) -> float:
    """Intersection over union; 0 where both are empty."""
    union = int((left | right).sum())
    return int((left & right).sum()) / union if union else 0.0


def _coverage(mask: BoolArray, geometry: FitGeometry, cells: IntArray, cell: int) -> float:
    """The share of a cell's pixels that the object covers; 0 for a cell outside the image."""
    inside = cells == cell
    if inside.any():
        return float(mask[inside].mean())
    # A cell smaller than a pixel may contain no pixel centre: take the pixel at its own centre.
    box = geometry.cell_box(*divmod(cell, geometry.grid.width))
    y, x = int((box.top + box.bottom) // 2), int((box.left + box.right) // 2)
    in_image = 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1]
    return float(mask[y, x]) if in_image else 0.0


@dataclass(frozen=True)
class Summary:
    """Averages over images, 0..1. ``pictures``: how many there are.

    ``heads``: of each head. ``best_head``: the best one if the same head is used for all images.
    ``best_head_per_image``: the best head of each image, chosen with its mask known.
    ``peak_on_object``: the share of images.
    """

    pictures: int
    heads: tuple[float, ...]
    best_head: int
    best_fixed_head: float
    best_head_per_image: float
    mean_map: float
    rollout: float
    peak_on_object: float


def summarise(scores: Sequence[ImageScores]) -> Summary:
    """Average the scores of one or more images."""
    heads = np.array([score.heads for score in scores])  # (images, H)
    per_head = heads.mean(axis=0)
    best = int(per_head.argmax())
    return Summary(
        pictures=len(scores),
        heads=tuple(per_head.tolist()),
        best_head=best,
        best_fixed_head=float(per_head[best]),
        best_head_per_image=float(heads.max(axis=1).mean()),
        mean_map=float(np.mean([score.mean_map for score in scores])),
        rollout=float(np.mean([score.rollout for score in scores])),
        peak_on_object=float(np.mean([score.peak_on_object for score in scores])),
    )
