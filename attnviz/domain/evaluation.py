"""What ``eval`` is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.choices import (
    DEFAULT_MASS,
    take_choices,
)
from attnviz.domain.forms import (
    SHARE,
)
from attnviz.domain.kinds import HeadsRequest, RolloutRequest
from attnviz.domain.kinds.common import LAYER, QUERY
from attnviz.domain.options import option
from attnviz.domain.query import Query

if TYPE_CHECKING:
    from attnviz.domain.requests import InputRequest, ModelRequest


@dataclass(frozen=True)
class EvaluationRequest:
    """Images, the masks of their objects, and what is compared with them."""

    model: ModelRequest
    inputs: InputRequest
    masks: str
    layer: int = LAYER()
    threshold: float = option(DEFAULT_MASS, SHARE, "Share of the attention that a mask holds.")
    query: Query = QUERY()

    def __post_init__(self) -> None:
        take_choices(self)

    @property
    def commands(self) -> tuple[HeadsRequest, RolloutRequest]:
        """What the model is asked for."""
        return (
            HeadsRequest(layer=self.layer, distance=False, query=self.query),
            RolloutRequest(query=self.query),
        )
