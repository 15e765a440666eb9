"""What the ``relevance`` command computes of one picture, for one target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import RelevanceMethod, take_choices

if TYPE_CHECKING:
    from attnviz.domain.arrays import FloatArray
    from attnviz.domain.image import FigureImage


@dataclass(frozen=True, eq=False)
class RelevanceMaps:
    """How much each token counts for a target: a class, or likeness to a second picture.

    relevance (gh, gw) and prefix (P,) float32, in the unit of the method: not negative, except for
    contributions, of which some speak against the target. value: the target itself, a logit or a
    cosine. One of class_index and like says which target it is; probability: softmax of the logits
    at the class, None without one. heads: over which the mean or the sum is taken.
    """

    relevance: FloatArray
    prefix: FloatArray
    value: float
    heads: tuple[int, ...]
    method: RelevanceMethod = RelevanceMethod.CHEFER
    class_index: int | None = None
    probability: float | None = None
    like: FigureImage | None = None

    def __post_init__(self) -> None:
        take_choices(self)
        check_shape("RelevanceMaps", "relevance", self.relevance, (None, None))
        check_shape("RelevanceMaps", "prefix", self.prefix, (None,))
        if (self.class_index is None) == (self.like is None):
            raise ValueError("RelevanceMaps needs either class_index or like")

    @property
    def signed(self) -> bool:
        """Whether values below 0 mean something."""
        return self.method is RelevanceMethod.CONTRIBUTION
