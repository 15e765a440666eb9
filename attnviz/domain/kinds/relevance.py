"""``relevance``: what counts for a class, or for the similarity to a second image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import RelevanceMethod, take_choices
from attnviz.domain.forms import PATH, choice, number
from attnviz.domain.kinds.common import HEADS_OPTION, OVERLAY_ONLY
from attnviz.domain.kinds.kind import CommandRequest, Kind, Maps
from attnviz.domain.options import option
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain.arrays import FloatArray
    from attnviz.domain.image import FigureImage
    from attnviz.domain.kinds.kind import Arrays, Row


@dataclass(frozen=True)
class RelevanceRequest(CommandRequest):
    """What counts for a target: the class ``class_index``, or similarity to the image ``like``.

    Raises:
        UsageError: No target, or two.
    """

    method: RelevanceMethod = option(
        RelevanceMethod.CHEFER,
        choice(RelevanceMethod),
        "How relevance is carried through the layers.",
    )
    class_index: int | None = option(
        None,
        number("N", least=0, type=int),
        "What speaks for this class, from 0, of the weights' own classifier.",
        name="class",
    )
    like: Path | None = option(
        None,
        PATH,
        "What makes the image similar to this second one: the cosine of their features.",
        metavar="IMAGE",
    )
    heads: tuple[int, ...] | None = HEADS_OPTION()
    overlay_only: bool = OVERLAY_ONLY()

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.like is None) == (self.class_index is None):
            raise UsageError(
                "relevance needs a target: --like or --class"
                if self.like is None
                else "--like and --class exclude each other",
                "--like SECOND.jpg: what makes the images similar; --class N: what speaks for a "
                "class, where the weights come with a classifier",
            )

    @property
    def needs_gradients(self) -> bool:
        """Whether something is differentiated, which float16 has no range for."""
        return self.method is not RelevanceMethod.CONTRIBUTION

    @property
    def second_image(self) -> Path | None:
        """The image to compare with, where there is one."""
        return self.like


@dataclass(frozen=True, eq=False)
class RelevanceMaps(Maps):
    """How much each token counts for a target: a class, or likeness to a second image.

    relevance (gh, gw) and prefix (P,) float32, in the unit of the method: not negative, except for
    contributions, of which some speak against the target. value: the target itself, a logit or a
    cosine. One of class_index and like says which target it is; probability: softmax of the logits
    at the class, None for a likeness or a single logit. heads: over which the mean or the sum is
    taken.
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

    def arrays(self) -> Arrays:
        """Arrays relevance (gh, gw), prefix (P,), value (), heads (H,)."""
        import numpy as np

        from attnviz.domain.kinds.common import given_arrays

        return given_arrays(
            relevance=self.relevance,
            prefix=self.prefix,
            value=np.array(self.value, np.float32),
            heads=self.heads,
        )

    def rows(self) -> tuple[Row, ...]:
        """One row: ``value`` is the target, a logit or a cosine.

        Of contributions to it, ``patches`` and ``prefix`` are the sums.
        """
        from attnviz.domain.row_statistics import focus, highest

        values = self.relevance
        patches, prefix = float(values.sum()), float(self.prefix.sum())
        row: dict[str, Any] = {"method": self.method.value}
        if self.like is None:
            row |= {"target": f"class {self.class_index}", "value": self.value}
            if self.probability is not None:
                row["probability"] = self.probability
        else:
            row |= {"target": f"like {self.like.name}", "value": self.value}
        if self.signed:
            row |= {"min": float(values.min()), **highest(values)}
            return (row | {"patches": patches, "prefix": prefix},)
        row |= {**highest(values), "mean": float(values.mean())}
        row["focus"] = float(focus(values[None])[0])
        row["prefix_mass"] = prefix / (patches + prefix) if patches + prefix > 0 else 0.0
        return (row,)


RELEVANCE = Kind(
    name="relevance",
    help="""What in the image counts for a target: a class, or the similarity to a second image.

    Attention weighted by the gradient of the target, through all layers (Chefer et al. 2021);
    gradient rollout; or, without a gradient, what each patch contributes to CLS along the target.

    Example: attnviz relevance photo.jpg --like second.jpg
    """,
    request=RelevanceRequest,
    maps=RelevanceMaps,
    compute="attnviz.attention.relevance:relevance_maps",
    draw="attnviz.figures.relevance:draw_relevance",
    overlays="attnviz.figures.overlays:relevance_overlays",
    check="attnviz.attention.checks:check_relevance",
    computed_with=("reference",),
    refer="attnviz.attention.relevance:reference_of",
    extra_bytes="attnviz.attention.memory:relevance_bytes",
)
