"""One image under several checkpoints of one model."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import DEFAULT_MASS, take_choices
from attnviz.domain.drawing import DrawStyle, SharedScaleStyle
from attnviz.domain.forms import PATH, SHARE, choice
from attnviz.domain.kinds import HeadsRequest, LayersRequest
from attnviz.domain.kinds.common import HEADS_OPTION, LAYER, QUERY
from attnviz.domain.options import option, switch
from attnviz.domain.query import Query
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain.arrays import FloatArray
    from attnviz.domain.kinds.kind import Arrays
    from attnviz.domain.requests import InputRequest, ModelRequest, OutputRequest


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

    def arrays(self) -> Arrays:
        """Arrays attention (C, R, gh, gw), prefix (C, R, P), entropy (C, R), heads (H,) and more.

        jaccard (C, R) with a mask, checkpoints (C,) text, steps (C,) where all have numbers;
        layer () of rows that are heads, layers (R,) of rows that are layers.
        """
        import numpy as np

        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            attention=self.attention,
            prefix=self.prefix,
            entropy=self.entropy,
            checkpoints=np.array(self.names),
            heads=self.heads,
            jaccard=self.jaccard,
            steps=self.numbers,
            layer=self.layer,
            layers=self.indices if self.rows is Rows.LAYERS else None,
        )


@dataclass(frozen=True)
class EvolutionRequest:
    """One image under several checkpoints of one model.

    checkpoints: as ``--checkpoint`` takes them. mask: the object's pixels, or None.
    """

    checkpoints: tuple[Path, ...]
    model: ModelRequest
    inputs: InputRequest
    output: OutputRequest
    style: DrawStyle = field(default_factory=SharedScaleStyle)
    mask: Path | None = option(
        None,
        PATH,
        "The object's pixels; adds the Jaccard index, as in eval.",
        metavar="FILE",
        check="attnviz.domain.parse:check_mask",
    )
    threshold: float = option(DEFAULT_MASS, SHARE, "Share of the attention that a mass mask holds.")
    rows: Rows = option(
        Rows.HEADS, choice(Rows), "What the rows show: heads, or layers as means over heads."
    )
    layer: int = LAYER()
    heads: tuple[int, ...] | None = HEADS_OPTION()
    query: Query = QUERY()
    animation: bool = switch("Also a GIF, one frame a checkpoint.", recorded=False)

    def __post_init__(self) -> None:
        take_choices(self)
        if self.mask is None and self.threshold != DEFAULT_MASS:
            raise UsageError("--threshold needs --mask: no masks are drawn without an object")

    @property
    def command(self) -> HeadsRequest | LayersRequest:
        """What every checkpoint is asked for."""
        if self.rows is Rows.LAYERS:
            return LayersRequest(heads=self.heads, distance=False, query=self.query)
        return HeadsRequest(self.layer, self.heads, distance=False, query=self.query)
