"""What ``compare`` shows side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnviz.domain.arrays import check_shape
from attnviz.domain.choices import MapKind
from attnviz.domain.drawing import DrawStyle, SharedScaleStyle
from attnviz.domain.options import given_options, request_options
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain.arrays import BoolArray, FloatArray
    from attnviz.domain.image import FigureImage
    from attnviz.domain.kinds import MatchRequest, RelevanceRequest, RolloutOptions
    from attnviz.domain.kinds.kind import Arrays
    from attnviz.domain.model import ModelInfo
    from attnviz.domain.requests import InputRequest, ModelRequest, OutputRequest


_COMPONENTS = frozenset(
    {MapKind.PCA, MapKind.FOREGROUND, MapKind.QUERY_PCA, MapKind.KEY_PCA, MapKind.VALUE_PCA}
)


_VECTORS = frozenset(
    {
        *(MapKind.QUERY_PCA, MapKind.KEY_PCA, MapKind.VALUE_PCA),
        *(MapKind.QUERY_NORM, MapKind.KEY_NORM, MapKind.VALUE_NORM),
    }
)
HEAD_KINDS = frozenset({MapKind.HEAD, *_VECTORS})
"""Maps of which a single head can be shown: ``head:3``, ``k-norm:3``."""

PLACED_KINDS = frozenset({MapKind.PATCH, MapKind.COSINE})
"""Maps of a patch: ``patch@3,7``, ``cosine@240,120px``."""

NO_LAYER = frozenset({MapKind.ROLLOUT, MapKind.RELEVANCE})
"""Maps of all layers together."""


@dataclass(frozen=True, eq=False)
class ComparedMap:
    """One kind of map in one row.

    values (K, gh, gw): raw, K = 1 but for ``heads``, one a head; for components (gh, gw, 3).
    foreground (gh, gw): the patches whose components are shown, None means all; the object, where
    one is discovered. layer: whose map
    it is; None for what is of all layers or of the model's output. cell: (row, column) of the patch
    that was asked for. rollout: the options of a rollout. reason: why there is no map of this
    image, with K = 0; None where there is one. caption: what the foot says about it.
    """

    kind: MapKind
    values: FloatArray
    foreground: BoolArray | None = None
    layer: int | None = None
    cell: tuple[int, int] | None = None
    rollout: RolloutOptions | None = None
    reason: str | None = None
    caption: str = ""

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


def compared_arrays(rows: Sequence[ComparedRow]) -> Arrays:
    """Every map of a comparison, as its own command has it: ``row0_mean``, ``row0_patch_3_7``, ...

    (gh, gw), for heads (H, gh, gw), for components (gh, gw, 3). A map that an image does not have
    is left out.
    """
    arrays: Arrays = {}
    for index, row in enumerate(rows):
        for name, shown in row.maps.items():
            if shown.reason is not None:
                continue
            # Signs, points and px stay, so that no two maps meet under one name.
            key = f"row{index}_{re.sub('[:@, ]', '_', name)}"
            many = shown.is_colours or shown.kind is MapKind.HEADS
            arrays[key] = shown.values if many else shown.values[0]
            if shown.foreground is not None:
                arrays[f"{key}_mask"] = shown.foreground
    return arrays


@dataclass(frozen=True)
class MapSpec:
    """A map that a comparison shows, as it is written: ``mean``, ``head:3``, ``patch@3,7``.

    A patch is a ``cell`` (row, column), or a ``point`` (x, y) of the original image, written
    ``patch@240,120px``. With several layers each map has its own: ``mean layer 3``.
    """

    kind: MapKind
    head: int | None = None
    cell: tuple[int, int] | None = None
    point: tuple[float, float] | None = None
    layer: int | None = None

    @property
    def needs_patch(self) -> bool:
        """Whether it is of a patch, and none is named."""
        return self.kind in PLACED_KINDS and self.cell is None and self.point is None

    def __str__(self) -> str:
        return self._text() + ("" if self.layer is None else f" layer {self.layer}")

    def _text(self) -> str:
        if self.head is not None:
            return f"{self.kind}:{self.head}"
        if self.cell is not None:
            return f"{self.kind}@{self.cell[0]},{self.cell[1]}"
        if self.point is not None:
            x, y = (repr(value).removesuffix(".0") for value in self.point)
            return f"{self.kind}@{x},{y}px"
        return str(self.kind)


@dataclass(frozen=True)
class CompareRequest:
    """One figure of every image under every model.

    ``layer`` None: the last, or the output. ``layers``: every map of a layer once for each of
    these. ``relevance``, ``match``: what the maps of these names are computed by.

    Raises:
        UsageError: Both ``layer`` and ``layers``, or relevance or match without what it needs.
    """

    models: tuple[ModelRequest, ...]
    inputs: InputRequest
    output: OutputRequest
    shown: tuple[MapSpec, ...]
    layer: int | None = None
    style: DrawStyle = field(default_factory=SharedScaleStyle)
    layers: tuple[int, ...] | None = None
    relevance: RelevanceRequest | None = None
    match: MatchRequest | None = None

    def __post_init__(self) -> None:
        if self.layer is not None and self.layers is not None:
            raise UsageError("--layer and --layers exclude each other")
        shows_relevance = any(spec.kind is MapKind.RELEVANCE for spec in self.shown)
        if shows_relevance and self.relevance is None:
            raise UsageError(
                "--show relevance needs a target", "give --like SECOND.jpg or --class N"
            )
        if self.relevance is not None and not shows_relevance:
            raise UsageError("--like, --class and --method need --show relevance")
        if self.match is None and any(spec.kind is MapKind.MATCH for spec in self.shown):
            raise UsageError("--show match needs a second image", "give --like SECOND.jpg")

    @property
    def second_images(self) -> tuple[RelevanceRequest | MatchRequest, ...]:
        """What needs more than the image; a second image is the same in all."""
        return tuple(each for each in (self.relevance, self.match) if each is not None)


def comparison_options(request: CompareRequest) -> dict[str, Any]:
    """The same of a comparison: what belongs to a row is a list, one entry a row that has it."""
    named = [model for model in request.models if model.checkpoint is None]
    checkpoints = [model for model in request.models if model.checkpoint is not None]
    # --checkpoint-key and --model-arg are of the checkpoints where there are any.
    first = checkpoints[0] if checkpoints else request.models[0]
    return given_options(
        {
            "show": [str(spec) for spec in request.shown],
            "layer": request.layer,
            "layers": None if request.layers is None else ",".join(map(str, request.layers)),
            "like": None if request.match is None else str(request.match.like),
            **({} if request.relevance is None else request_options(request.relevance)),
            **request_options(first, request.inputs, request.style),
            "model": [model.name for model in named if model.name is not None],
            "checkpoint": [_named_path(model) for model in checkpoints],
            "random-weights": any(model.random_weights for model in request.models),
        }
    )


def _named_path(model: ModelRequest) -> str:
    return f"{model.name}={model.checkpoint}" if model.name else str(model.checkpoint)
