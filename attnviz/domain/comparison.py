"""What ``compare`` shows side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import MapKind

if TYPE_CHECKING:
    from attnviz.domain.arrays import BoolArray, FloatArray
    from attnviz.domain.model import ModelInfo
    from attnviz.domain.picture import Picture


@dataclass(frozen=True, eq=False)
class ComparedMap:
    """One kind of map in one row.

    values (K, gh, gw): raw, K = 1 but for ``heads``, one a head; for components (gh, gw, 3).
    foreground (gh, gw): the patches whose components are shown; None means all.
    """

    kind: MapKind
    values: FloatArray
    foreground: BoolArray | None = None

    def __post_init__(self) -> None:
        last = 3 if self.is_colours else None
        check_shape("ComparedMap", "values", self.values, (None, None, last))

    @property
    def is_colours(self) -> bool:
        """Whether the values are components, shown as red, green and blue."""
        return self.kind in (MapKind.PCA, MapKind.FOREGROUND)


@dataclass(frozen=True, eq=False)
class ComparedRow:
    """One picture under one model: a map for every column that was asked for, by its name.

    title: what tells the row from the others: the picture's name, the model's, or both.
    """

    title: tuple[str, ...]
    model: ModelInfo
    picture: Picture
    maps: dict[str, ComparedMap]
