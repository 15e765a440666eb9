"""What ``compare`` shows side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import MapKind

if TYPE_CHECKING:
    from attnviz.domain.arrays import BoolArray, FloatArray
    from attnviz.domain.image import FigureImage
    from attnviz.domain.maps import RolloutOptions
    from attnviz.domain.model import ModelInfo


_COMPONENTS = frozenset(
    {MapKind.PCA, MapKind.FOREGROUND, MapKind.QUERY_PCA, MapKind.KEY_PCA, MapKind.VALUE_PCA}
)


@dataclass(frozen=True, eq=False)
class ComparedMap:
    """One kind of map in one row.

    values (K, gh, gw): raw, K = 1 but for ``heads``, one a head; for components (gh, gw, 3).
    foreground (gh, gw): the patches whose components are shown; None means all. layer: whose map
    it is; None for what is of all layers or of the model's output. cell: (row, column) of the patch
    that was asked for. rollout: the options of a rollout. reason: why there is no map of this
    image, with K = 0; None where there is one.
    """

    kind: MapKind
    values: FloatArray
    foreground: BoolArray | None = None
    layer: int | None = None
    cell: tuple[int, int] | None = None
    rollout: RolloutOptions | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        last = 3 if self.is_colours else None
        check_shape("ComparedMap", "values", self.values, (None, None, last))

    @property
    def is_colours(self) -> bool:
        """Whether the values are components, shown as red, green and blue."""
        return self.kind in _COMPONENTS


@dataclass(frozen=True, eq=False)
class ComparedRow:
    """One image under one model: a map for every column that was asked for, by its name.

    title: what tells the row from the others: the image's name, the model's, or both; none where
    there is one row. label: the model's name, or that of its weights where models share one.
    """

    title: tuple[str, ...]
    label: str
    model: ModelInfo
    image: FigureImage
    maps: dict[str, ComparedMap]
