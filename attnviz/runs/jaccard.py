"""How well attention draws objects: the number of the DINO paper's figure 4 (Caron et al. 2021).

Each map is cut to its mass mask, the mask is enlarged to the picture's own pixels, cell by cell,
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
class PictureScores:
    """One picture. Jaccard indices 0..1 of each head, of the mean over heads, and of the rollout.

    ``peak_on_object``: the object covers half or more of the highest cell of the mean map.
    """

    heads: tuple[float, ...]
    mean_map: float
    rollout: float
    peak_on_object: bool


def score_picture(
    attention: FloatArray,
    rollout: FloatArray,
    geometry: FitGeometry,
    mask: BoolArray,
    threshold: float = DEFAULT_MASS,
) -> PictureScores:
    """Compare one picture's maps with its object.

    attention: (H, gh, gw) raw, all heads of a layer. rollout: (gh, gw). mask: (height, width) bool
    of the original picture. threshold: the share of the patches' attention that a mask holds.
    """
    cells = cell_numbers(geometry)
    mean = attention.mean(axis=0, dtype=np.float64)

    def drawn(values: Any) -> float:
        return jaccard(on_pixels(mass_mask(values, threshold), cells), mask)

    return PictureScores(
        heads=tuple(drawn(head) for head in attention),
        mean_map=drawn(mean),
        rollout=drawn(rollout),
        peak_on_object=_covered(mask, geometry, cells, int(mean.argmax())) >= 0.5,
    )


def jaccard(left: BoolArray, right: BoolArray) -> float:
    """Intersection over union; 0 where both are empty."""
    union = int((left | right).sum())
    return int((left & right).sum()) / union if union else 0.0


def _covered(mask: BoolArray, geometry: FitGeometry, cells: IntArray, cell: int) -> float:
    """The share of a cell's pixels on which the object lies; 0 for a cell beyond the picture."""
    inside = cells == cell
    if inside.any():
        return float(mask[inside].mean())
    # A cell smaller than a pixel may hold no pixel's centre: the pixel under its own one counts.
    box = geometry.cell_box(*divmod(cell, geometry.grid.width))
    y, x = int((box.top + box.bottom) // 2), int((box.left + box.right) // 2)
    inside_picture = 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1]
    return float(mask[y, x]) if inside_picture else 0.0


@dataclass(frozen=True)
class Summary:
    """Averages over pictures, 0..1.

    ``heads``: of each head. ``best_head``: the one that is best when one is chosen for all
    pictures. ``best_head_per_image``: the best head of each picture, chosen with its mask in hand.
    ``peak_on_object``: the share of pictures.
    """

    pictures: int
    heads: tuple[float, ...]
    best_head: int
    best_fixed_head: float
    best_head_per_image: float
    mean_map: float
    rollout: float
    peak_on_object: float


def summarise(scores: Sequence[PictureScores]) -> Summary:
    """Average at least one picture's scores."""
    heads = np.array([score.heads for score in scores])  # (pictures, H)
    of_each = heads.mean(axis=0)
    best = int(of_each.argmax())
    return Summary(
        pictures=len(scores),
        heads=tuple(of_each.tolist()),
        best_head=best,
        best_fixed_head=float(of_each[best]),
        best_head_per_image=float(heads.max(axis=1).mean()),
        mean_map=float(np.mean([score.mean_map for score in scores])),
        rollout=float(np.mean([score.rollout for score in scores])),
        peak_on_object=float(np.mean([score.peak_on_object for score in scores])),
    )
