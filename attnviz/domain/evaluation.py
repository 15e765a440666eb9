"""What ``eval`` is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.choices import (
    DEFAULT_MASS,
    DiscoverMethod,
    take_choices,
)
from attnviz.domain.forms import (
    PATH,
    SHARE,
    choices,
)
from attnviz.domain.kinds import CommandRequest, DiscoverRequest, HeadsRequest, RolloutRequest
from attnviz.domain.kinds.common import LAYER, QUERY
from attnviz.domain.options import option
from attnviz.domain.query import Query
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain.requests import InputRequest, ModelRequest


@dataclass(frozen=True)
class EvaluationRequest:
    """Images, masks or boxes of their objects, and what is compared with them.

    Raises:
        UsageError: Neither masks nor boxes, or methods without boxes.
    """

    model: ModelRequest
    inputs: InputRequest
    masks: str | None = None
    layer: int = LAYER()
    threshold: float = option(DEFAULT_MASS, SHARE, "Share of the attention that a mask holds.")
    query: Query = QUERY()
    boxes: Path | None = option(
        None,
        PATH,
        "A CSV file of the objects' boxes (image, left, top, right, bottom in pixels); adds CorLoc "
        "of the boxes that discover finds.",
        metavar="FILE",
    )
    methods: tuple[DiscoverMethod, ...] = option(
        (),
        choices(DiscoverMethod),
        "Of --boxes: how objects are discovered; repeatable.",
        name="method",
        show="tokencut",
    )

    def __post_init__(self) -> None:
        take_choices(self)
        methods = tuple(dict.fromkeys(map(DiscoverMethod, self.methods)))
        object.__setattr__(self, "methods", methods)
        if self.masks is None and self.boxes is None:
            raise UsageError(
                "eval needs masks or boxes", "attnviz eval photos/ masks/, or --boxes boxes.csv"
            )
        if self.methods and self.boxes is None:
            raise UsageError("--method needs --boxes")

    @property
    def commands(self) -> tuple[CommandRequest, ...]:
        """Everything that the model is asked for."""
        return (*(self.segmenting if self.masks is not None else ()), *self.locating.values())

    @property
    def locating(self) -> dict[DiscoverMethod, DiscoverRequest]:
        """What is compared with boxes."""
        if self.boxes is None:
            return {}
        methods = self.methods or (DiscoverMethod.TOKENCUT,)
        return {method: DiscoverRequest(method, self.layer) for method in methods}

    @property
    def segmenting(self) -> tuple[HeadsRequest, RolloutRequest]:
        """What is compared with masks."""
        return (
            HeadsRequest(layer=self.layer, distance=False, query=self.query),
            RolloutRequest(query=self.query),
        )
