"""How well discovered boxes locate objects: CorLoc, as LOST and TokenCut report it.

CorLoc (Deselaers et al. 2010) is the share of images whose box overlaps one of the object's boxes
by an intersection over union above 0.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain import DiscoverMethod

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnviz.domain import Box

LOCATED = 0.5
"""An intersection over union above this counts."""

Overlaps = dict[DiscoverMethod, float]
"""By method, the overlap of an image's box with that of its objects that it meets best, 0..1."""


def overlap(one: Box, other: Box) -> float:
    """Intersection over union of two boxes, 0..1; 0 for an empty one."""
    height = min(one.bottom, other.bottom) - max(one.top, other.top)
    width = min(one.right, other.right) - max(one.left, other.left)
    shared = max(height, 0.0) * max(width, 0.0)
    union = _area(one) + _area(other) - shared
    return shared / union if union > 0 else 0.0


def corloc(overlaps: Sequence[Mapping[DiscoverMethod, float]]) -> dict[DiscoverMethod, float]:
    """The share of images that each method locates, of one or more."""
    return {
        method: sum(each[method] > LOCATED for each in overlaps) / len(overlaps)
        for method in overlaps[0]
    }


def _area(box: Box) -> float:
    return (box.bottom - box.top) * (box.right - box.left)
