"""What a run is asked to do: plain values that the command line, configs and Python users share.

A request holds what the user wrote; nothing in it has been looked up or read. Layers and heads
count from 0 and negative numbers count from the end; they are resolved once the model is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from attnviz.domain import (
    DEFAULT_KEEP_RATIO,
    DEFAULT_MAX_PIXELS,
    DrawStyle,
    Fit,
    ImageFormat,
    MapKind,
    Norm,
    Part,
    Positions,
    Precision,
    Query,
    RelevanceMethod,
    RolloutOptions,
    Shard,
    Size,
    take_choices,
)
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

SizeRequest = int | Size | Literal["original"] | None
"""Shorter side in pixels, exact height and width, the picture's own size, or the model's native."""

BandChoice = tuple[int, int, int]
"""Which bands of an image file, from 1, are red, green and blue."""

ValueRange = tuple[float, float] | Literal["auto"]
"""The values of an image file that become 0 and 255, or those of its 1st and 99th percentile."""


@dataclass(frozen=True)
class ModelRequest:
    """Which model to load, from where, onto what.

    ``name`` None: whatever the checkpoint says it is, or the default model without one.
    ``positions`` None: the rule of the code that the weights come with.
    ``args``: sizes of one's own (width, depth, heads, patch, ...) for a checkpoint.
    """

    name: str | None = None
    checkpoint: Path | None = None
    checkpoint_key: str | None = None
    random_weights: bool = False
    device: str = "auto"
    precision: Precision = Precision.FLOAT32
    positions: Positions | None = None
    args: dict[str, int] = field(default_factory=dict)
    verify: bool = False


@dataclass(frozen=True)
class InputRequest:
    """Which pictures, and how they become model inputs.

    ``inputs``: files, folders, globs, or "-" for a list on standard input. ``shard``: only the
    pictures that belong to it. ``bands`` and ``value_range`` are as of ``read_image``.
    """

    inputs: tuple[str, ...]
    size: SizeRequest = None
    fit: Fit = Fit.ASPECT
    max_pixels: int = DEFAULT_MAX_PIXELS
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    bands: BandChoice | None = None
    value_range: ValueRange | None = None
    shard: Shard | None = None

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True)
class ClusterRequest:
    """A run on a Ray cluster instead of in this process.

    ``address`` None: a cluster of this machine, for this run. ``cpus_per_model``: CPU cores that
    one model computes with where there are no GPUs; 0 means automatic.
    """

    address: str | None = None
    cpus_per_model: int = 0


@dataclass(frozen=True)
class OutputRequest:
    """Where results go and in which forms.

    ``name``: the stem of a single picture's files, instead of the picture's own. ``table``: a file
    for the numbers of all pictures. ``summary``: also one figure about all pictures.
    """

    folder: Path
    formats: tuple[ImageFormat, ...] = (ImageFormat.PNG,)
    save_data: bool = False
    skip_existing: bool = False
    name: str | None = None
    table: Path | None = None
    summary: bool = False

    @property
    def every_number(self) -> bool:
        """Whether the numbers of pictures count whose figures stand already."""
        return self.table is not None or self.summary


@dataclass(frozen=True)
class HeadsRequest:
    """The CLS attention of every head of a layer."""

    layer: int = -1
    heads: tuple[int, ...] | None = None
    threshold: float | None = None
    overlay: bool = False
    distance: bool = True
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True)
class LayersRequest:
    """The CLS attention of every layer."""

    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    each_head: bool = False
    distance: bool = True
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True)
class RolloutRequest:
    """Attention rollout. ``depths``: also show the rollout after these layers."""

    options: RolloutOptions = field(default_factory=RolloutOptions)
    heads: tuple[int, ...] | None = None
    depths: tuple[int, ...] = ()
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True)
class PatchRequest:
    """The attention of chosen patches: ``cells`` (row, column), ``points`` (x, y) in pixels.

    Without either: the centre patch of each quadrant.
    """

    layer: int = -1
    heads: tuple[int, ...] | None = None
    cells: tuple[tuple[int, int], ...] = ()
    points: tuple[tuple[float, float], ...] = ()
    each_head: bool = False


@dataclass(frozen=True)
class ScoreRequest:
    """The VTC-LFC token score of a layer."""

    layer: int = -1
    heads: tuple[int, ...] | None = None
    keep_ratio: float = DEFAULT_KEEP_RATIO
    csv: bool = False


@dataclass(frozen=True)
class RelevanceRequest:
    """What counts for a target: the class ``class_index``, or likeness to the picture ``like``."""

    method: RelevanceMethod = RelevanceMethod.CHEFER
    class_index: int | None = None
    like: Path | None = None
    heads: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        take_choices(self)


def no_gradients_in_float16() -> UsageError:
    """For relevance by gradients in float16, whose range they leave."""
    return UsageError(
        "relevance needs gradients, which vanish in float16",
        "use --precision float32 or bfloat16",
    )


@dataclass(frozen=True)
class MatrixRequest:
    """The attention matrices of a layer, before and after softmax.

    ``whole``: also hold every value, and not only the means that are drawn.
    """

    layer: int = -1
    heads: tuple[int, ...] | None = None
    norm: Norm = Norm.LOG
    whole: bool = False

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True)
class FeaturesRequest:
    """The output tokens of the model, or of ``layer``; ``cells`` and ``points`` as for patches."""

    layer: int | None = None
    cells: tuple[tuple[int, int], ...] = ()
    points: tuple[tuple[float, float], ...] = ()
    foreground: bool = False
    flip_foreground: bool = False
    outlier_threshold: float | None = None


@dataclass(frozen=True)
class QkvRequest:
    """Queries, keys and values of a layer."""

    layer: int = -1
    heads: tuple[int, ...] | None = None
    parts: tuple[Part, ...] = tuple(Part)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(dict.fromkeys(map(Part, self.parts))))
        if not self.parts:
            raise UsageError("no part was named", "give q, k or v")


CommandRequest = (
    HeadsRequest
    | LayersRequest
    | RolloutRequest
    | PatchRequest
    | ScoreRequest
    | RelevanceRequest
    | FeaturesRequest
    | MatrixRequest
    | QkvRequest
)


@dataclass(frozen=True)
class ShownMap:
    """A map that a comparison shows, as it is written: ``mean``, ``head:3``, ``patch@3,7``.

    A place is a ``cell`` (row, column), or a ``point`` (x, y) of the original picture, written
    ``patch@240,120px``.
    """

    kind: MapKind
    head: int | None = None
    cell: tuple[int, int] | None = None
    point: tuple[float, float] | None = None

    def __str__(self) -> str:
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
    """One figure of every picture under every model. ``layer`` None: the last, or the output."""

    models: tuple[ModelRequest, ...]
    inputs: InputRequest
    output: OutputRequest
    shown: tuple[ShownMap, ...]
    layer: int | None = None
    style: DrawStyle = field(default_factory=DrawStyle)


@dataclass(frozen=True)
class RunRequest:
    """One run of one command over any number of pictures.

    ``batch_size`` 0 means automatic. ``workers`` None means automatic, 0 draws in this process.
    ``cluster`` None: everything runs on this machine, in this process and the ones that draw.
    """

    command: CommandRequest
    model: ModelRequest
    inputs: InputRequest
    output: OutputRequest
    style: DrawStyle = field(default_factory=DrawStyle)
    batch_size: int = 0
    workers: int | None = None
    fail_fast: bool = False
    cluster: ClusterRequest | None = None
