"""The frozen values that travel between the stages, checked where they are made.

Letters: L layers, H heads, N tokens = P prefix + gh * gw patches, Q queries. Height comes before
width in every name and tuple. Arrays are C-contiguous numpy; attention is raw, never scaled for
display. This module imports neither numpy nor torch, so that ``attnviz --help`` stays quick.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]
    ByteArray = NDArray[np.uint8]
    BoolArray = NDArray[np.bool_]
    IntArray = NDArray[np.int64]

DEFAULT_MODEL = "dino_vits8"
DEFAULT_OUT = "attnviz-out"
DEFAULT_CMAP = "inferno"
DEFAULT_DPI = 200
DEFAULT_ALPHA = 0.85
DEFAULT_DISCARD_RATIO = 0.9
DEFAULT_RESIDUAL = 0.5
DEFAULT_KEEP_RATIO = 0.5
DEFAULT_MASS = 0.6
"""Share of the attention that a mask holds where masks are judged (Caron et al. 2021, figure 4)."""

DEFAULT_TOLERANCE = 0.5
"""Root mean square by which two PNG files may differ, over pixels and channels, in 255ths."""

DEFAULT_MAX_PIXELS = 178_956_970
"""Largest picture that is decoded, in pixels: twice the size at which Pillow begins to warn."""

COLUMN_INCHES = 3.35
PAGE_INCHES = 7.0


class Fit(StrEnum):
    """How a picture becomes a model input whose sides are multiples of the patch."""

    ASPECT = "aspect"
    SQUASH = "squash"
    CROP = "crop"
    PAD = "pad"


class Positions(StrEnum):
    """Whose rule resizes the position embedding when the grid is not the stored one."""

    ORIGINAL = "original"
    TIMM = "timm"
    HF = "hf"


class Precision(StrEnum):
    """The number type in which the model runs. Softmax and reductions are float32 in any case."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Scale(StrEnum):
    """What 0 and 1 of a colour map stand for."""

    PANEL = "panel"
    SHARED = "shared"
    FIXED = "fixed"


class Interpolation(StrEnum):
    """How cells are enlarged: nearest shows what was measured."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"


class Fusion(StrEnum):
    """How rollout joins the heads of a layer."""

    MEAN = "mean"
    MAX = "max"
    MIN = "min"


class DiscardOrder(StrEnum):
    """Whether rollout discards small values before or after the residual is added."""

    BEFORE = "before"
    AFTER = "after"


class Query(StrEnum):
    """Whose rows the whole-picture commands show: the class token's, or the mean over patches."""

    CLS = "cls"
    MEAN = "mean"


class ImageFormat(StrEnum):
    """File formats of figures."""

    PNG = "png"
    PDF = "pdf"
    SVG = "svg"


def take_choices(values: Any) -> None:
    """Make the members of what a dataclass was given as text: "max" becomes ``Fusion.MAX``.

    Members are compared by identity, so a text left as it is would be taken for another choice.

    Raises:
        ValueError: A text that is no member.
    """
    for item in fields(values):
        if isinstance(item.default, StrEnum):
            chosen = type(item.default)(getattr(values, item.name))
            object.__setattr__(values, item.name, chosen)


class Size(NamedTuple):
    """Height and width in pixels or cells, always in this order."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.height}x{self.width}"


class Box(NamedTuple):
    """A rectangle in pixel edges of the original picture: (0, 0, height, width) is all of it."""

    top: float
    left: float
    bottom: float
    right: float


def _check_shape(owner: str, name: str, array: Any, expected: tuple[int | None, ...]) -> None:
    shape = tuple(array.shape)
    wrong = len(shape) != len(expected) or any(
        want is not None and have != want for have, want in zip(shape, expected, strict=False)
    )
    if wrong:
        wanted = tuple("any" if n is None else n for n in expected)
        raise ValueError(f"{owner}.{name} has shape {shape}, expected {wanted}")


def _check_dtype(owner: str, name: str, array: Any, expected: str) -> None:
    if array.dtype.name != expected:
        raise ValueError(f"{owner}.{name} is {array.dtype.name}, expected {expected}")


@dataclass(frozen=True)
class ImageFile:
    """A picture on disk.

    ``path`` is what is opened; ``relative`` is where its outputs go below the output folder
    (sub-folders of an input folder are kept; a file named on its own is just its name).
    """

    path: Path
    relative: Path


@dataclass(frozen=True, eq=False)
class RgbImage:
    """A decoded picture, upright, in sRGB.

    pixels: (height, width, 3) uint8. ``sha256`` is that of the file's bytes (hex).
    ``notes``: what was done to it that a user should know (first frame taken, alpha flattened).
    """

    file: ImageFile
    pixels: ByteArray
    sha256: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_shape("RgbImage", "pixels", self.pixels, (None, None, 3))
        _check_dtype("RgbImage", "pixels", self.pixels, "uint8")

    @property
    def size(self) -> Size:
        """Height and width of the picture in pixels."""
        return Size(int(self.pixels.shape[0]), int(self.pixels.shape[1]))


@dataclass(frozen=True)
class FitGeometry:
    """Where the model's input lies on the original picture.

    ``region`` is the part of the original picture (in its pixel edges) that the model input
    covers exactly, edge to edge; with padding it reaches beyond the picture. Cell (r, c) of the
    grid covers rows r*patch .. (r+1)*patch of the model input.
    """

    original: Size
    model_input: Size
    patch: int
    region: Box

    def __post_init__(self) -> None:
        if self.model_input.height % self.patch or self.model_input.width % self.patch:
            raise ValueError(
                f"FitGeometry.model_input is {self.model_input}, not multiples of {self.patch}"
            )

    @property
    def grid(self) -> Size:
        """Rows and columns of patches."""
        return Size(self.model_input.height // self.patch, self.model_input.width // self.patch)

    @property
    def cell_size(self) -> tuple[float, float]:
        """Height and width of one cell in pixels of the original picture."""
        return (
            (self.region.bottom - self.region.top) / self.grid.height,
            (self.region.right - self.region.left) / self.grid.width,
        )

    def cell_box(self, row: int, column: int) -> Box:
        """The cell's rectangle on the original picture, in pixel edges (not clipped to it)."""
        height, width = self.cell_size
        top, left = self.region.top + row * height, self.region.left + column * width
        return Box(top, left, top + height, left + width)

    def cell_at(self, y: float, x: float) -> tuple[int, int] | None:
        """The cell that covers the point (y, x) of the original picture, or None outside."""
        height, width = self.cell_size
        row, column = (y - self.region.top) // height, (x - self.region.left) // width
        if 0 <= row < self.grid.height and 0 <= column < self.grid.width:
            return int(row), int(column)
        return None


@dataclass(frozen=True, eq=False)
class PreparedImage:
    """A picture as the model sees it.

    tensor: (3, h, w) float32, normalised with the model's mean and standard deviation.
    """

    image: RgbImage
    geometry: FitGeometry
    tensor: FloatArray

    def __post_init__(self) -> None:
        _check_shape("PreparedImage", "tensor", self.tensor, (3, *self.geometry.model_input))
        _check_dtype("PreparedImage", "tensor", self.tensor, "float32")


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a loaded model, read from the model itself.

    ``prefix`` = class token + distillation token + registers. ``weights`` says where the weights
    came from (hub name, file name, "random weights"); ``weights_sha256`` is of the file.
    """

    name: str
    timm_name: str
    patch: int
    width: int
    depth: int
    heads: int
    prefix: int
    registers: int
    has_cls: bool
    native_size: Size
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: str
    positions: Positions
    weights: str
    weights_sha256: str | None = None
    random_weights: bool = False


@dataclass(frozen=True, eq=False)
class HeadsMaps:
    """CLS attention of the chosen heads of one layer.

    attention (H, gh, gw): raw float32 weights of the patch tokens. prefix (H, P): the weights of
    the prefix tokens, so that attention and prefix of a head sum to 1. entropy (H,): of the whole
    row, nats. heads: the model's index of each entry. What takes the whole matrix is None when it
    was not asked for: distance (H,), the mean attention distance over all patch queries in input
    pixels; to_cls (H, gh, gw), the attention of every patch to CLS; token_entropy (H, N), the
    entropy of every token's row. query: whose rows these are.
    """

    attention: FloatArray
    prefix: FloatArray
    entropy: FloatArray
    distance: FloatArray | None
    layer: int
    heads: tuple[int, ...]
    to_cls: FloatArray | None = None
    token_entropy: FloatArray | None = None
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        count = len(self.heads)
        _check_shape("HeadsMaps", "attention", self.attention, (count, None, None))
        _check_shape("HeadsMaps", "prefix", self.prefix, (count, None))
        _check_shape("HeadsMaps", "entropy", self.entropy, (count,))
        if self.distance is not None:
            _check_shape("HeadsMaps", "distance", self.distance, (count,))

    @property
    def tokens(self) -> int:
        """N: prefix tokens and patches."""
        _, height, width = self.attention.shape
        return int(self.prefix.shape[1] + height * width)


@dataclass(frozen=True, eq=False)
class LayersMaps:
    """CLS attention of the chosen heads of the chosen layers.

    attention (L, H, gh, gw), prefix (L, H, P), entropy (L, H), distance (L, H) or None.
    """

    attention: FloatArray
    prefix: FloatArray
    entropy: FloatArray
    distance: FloatArray | None
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        both = (len(self.layers), len(self.heads))
        _check_shape("LayersMaps", "attention", self.attention, (*both, None, None))
        _check_shape("LayersMaps", "prefix", self.prefix, (*both, None))
        _check_shape("LayersMaps", "entropy", self.entropy, both)
        if self.distance is not None:
            _check_shape("LayersMaps", "distance", self.distance, both)

    @property
    def tokens(self) -> int:
        """N: prefix tokens and patches."""
        height, width = self.attention.shape[2:]
        return int(self.prefix.shape[2] + height * width)


@dataclass(frozen=True)
class RolloutOptions:
    """Attention rollout (Abnar & Zuidema 2020) as DESIGN defines it; see docs/definitions.md."""

    fusion: Fusion = Fusion.MEAN
    residual: float = DEFAULT_RESIDUAL
    discard_ratio: float = DEFAULT_DISCARD_RATIO
    discard: DiscardOrder = DiscardOrder.AFTER
    start_layer: int = 0

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True, eq=False)
class RolloutMaps:
    """The rollout's CLS row and, beside it, the last layer's mean CLS map.

    rollout (gh, gw), prefix (P,): rollout and prefix sum to 1. last (gh, gw): mean over heads of
    the last layer's row of the same query. depths and at_depth (K, gh, gw), at_depth_prefix
    (K, P): the rollout from the start layer up to and including each depth.
    """

    rollout: FloatArray
    prefix: FloatArray
    last: FloatArray
    options: RolloutOptions
    last_layer: int
    depths: tuple[int, ...]
    at_depth: FloatArray
    at_depth_prefix: FloatArray
    heads: tuple[int, ...]
    query: Query = Query.CLS

    def __post_init__(self) -> None:
        grid = tuple(self.rollout.shape)
        _check_shape("RolloutMaps", "rollout", self.rollout, (None, None))
        _check_shape("RolloutMaps", "last", self.last, grid)
        _check_shape("RolloutMaps", "at_depth", self.at_depth, (len(self.depths), *grid))


@dataclass(frozen=True, eq=False)
class PatchMaps:
    """Attention of chosen patches.

    attention (Q, H, gh, gw), prefix (Q, H, P), entropy (Q, H), cells (Q, 2) as (row, column).
    """

    attention: FloatArray
    prefix: FloatArray
    entropy: FloatArray
    cells: IntArray
    layer: int
    heads: tuple[int, ...]

    def __post_init__(self) -> None:
        queries = int(self.cells.shape[0])
        _check_shape("PatchMaps", "cells", self.cells, (queries, 2))
        both = (queries, len(self.heads))
        _check_shape("PatchMaps", "attention", self.attention, (*both, None, None))
        _check_shape("PatchMaps", "prefix", self.prefix, (*both, None))
        _check_shape("PatchMaps", "entropy", self.entropy, both)

    @property
    def tokens(self) -> int:
        """N: prefix tokens and patches."""
        height, width = self.attention.shape[2:]
        return int(self.prefix.shape[2] + height * width)


@dataclass(frozen=True, eq=False)
class ScoreMaps:
    """The VTC-LFC token score of one layer and its two terms, all (gh, gw) float32.

    score = cls_term + patch_term. kept (gh, gw) bool: the round(keep_ratio * gh * gw) highest.
    """

    score: FloatArray
    cls_term: FloatArray
    patch_term: FloatArray
    kept: BoolArray
    keep_ratio: float
    layer: int
    heads: tuple[int, ...]

    def __post_init__(self) -> None:
        grid = tuple(self.score.shape)
        _check_shape("ScoreMaps", "score", self.score, (None, None))
        for name in ("cls_term", "patch_term", "kept"):
            _check_shape("ScoreMaps", name, getattr(self, name), grid)


Maps = HeadsMaps | LayersMaps | RolloutMaps | PatchMaps | ScoreMaps


@dataclass(frozen=True)
class DrawStyle:
    """How a figure is drawn; the same for every kind of figure.

    width is in inches. ``fixed_limits`` are the colour limits of ``Scale.FIXED``.
    """

    width: float = PAGE_INCHES
    dpi: int = DEFAULT_DPI
    cmap: str = DEFAULT_CMAP
    scale: Scale = Scale.PANEL
    fixed_limits: tuple[float, float] | None = None
    interpolation: Interpolation = Interpolation.NEAREST
    alpha: float = DEFAULT_ALPHA

    def __post_init__(self) -> None:
        take_choices(self)


@dataclass(frozen=True, eq=False)
class Picture:
    """What a drawing needs of the picture: its pixels, where the map lies on it, and its name.

    pixels: (height, width, 3) uint8 of the original picture.
    """

    pixels: ByteArray
    geometry: FitGeometry
    name: str


@dataclass(frozen=True)
class Provenance:
    """How a figure was made: stored in the file, in the data file and in the JSON record.

    ``options`` holds every option of the command that shapes the numbers or the drawing, by its
    command-line name, as JSON-ready values. ``device`` is where the model ran: cpu, cuda or mps.
    """

    command: str
    model: ModelInfo
    image: str
    image_sha256: str
    geometry: FitGeometry
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    device: str = "cpu"


@dataclass(frozen=True)
class WrittenFile:
    """A file that stands complete under its final name."""

    path: Path
    kind: str


def sha256_of(data: bytes) -> str:
    """Hex SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()
