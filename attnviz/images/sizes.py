"""Sizes of model inputs, checked before there is an image. No PIL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain import Fit, Size
from attnviz.domain.geometry import as_size
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.domain.requests import SizeRequest


def check_size(patch: int, size: SizeRequest, fit: Fit) -> None:
    """Raise UsageError for a size that no image can be given. Needs no image."""
    size = as_size(size)
    if size is None or size == "original":
        return
    sides = Size(size, size) if isinstance(size, int) else size
    for side in sides:
        if side < patch:
            raise UsageError(
                f"size {side} is smaller than one patch of {patch} pixels",
                f"give at least --size {patch}",
            )
        if fit is not Fit.ASPECT and side % patch:
            below = side // patch * patch
            raise UsageError(
                f"size {side} is not a multiple of the patch size {patch}, which --fit {fit} needs",
                f"the nearest are {below} and {below + patch}",
            )
