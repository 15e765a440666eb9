"""One image under several checkpoints of one model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import Query

if TYPE_CHECKING:
    from attnviz.domain.arrays import FloatArray


class Rows(StrEnum):
    """What stands below each other in the figure of ``evolve``."""

    HEADS = "heads"
    LAYERS = "layers"


@dataclass(frozen=True, eq=False)
class EvolutionMaps:
    """CLS attention of C checkpoints in R rows: the heads of a layer, or each layer's mean head.

    attention (C, R, gh, gw), prefix (C, R, P), entropy (C, R): as in ``HeadsMaps``; of layers, the
    means over the chosen heads. jaccard (C, R): of each map's mass mask with the object; None
    without one. indices (R,): the head or layer of each row. layer: of the heads. names (C,):
    titles of the checkpoints; steps (C,): their numbers, rising, None for a last one that has
    none; or None where there are no numbers.
    """

    attention: FloatArray
    prefix: FloatArray
    entropy: FloatArray
    jaccard: FloatArray | None
    rows: Rows
    indices: tuple[int, ...]
    heads: tuple[int, ...]
    layer: int | None
    names: tuple[str, ...]
    steps: tuple[int | None, ...] | None
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        both = (len(self.names), len(self.indices))
        check_shape("EvolutionMaps", "attention", self.attention, (*both, None, None))
        check_shape("EvolutionMaps", "prefix", self.prefix, (*both, None))
        check_shape("EvolutionMaps", "entropy", self.entropy, both)
        if self.jaccard is not None:
            check_shape("EvolutionMaps", "jaccard", self.jaccard, both)

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """The steps if every checkpoint has one."""
        numbers = tuple(step for step in self.steps or () if step is not None)
        return numbers if len(numbers) == len(self.names) else None

    @property
    def tokens(self) -> int:
        """N: prefix tokens and patches."""
        height, width = self.attention.shape[2:]
        return int(self.prefix.shape[2] + height * width)
