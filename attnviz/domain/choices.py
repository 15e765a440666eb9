"""What options may be: choices by name, and the defaults that more than one place speaks of."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from attnviz.domain.query import Query

DEFAULT_MODEL = "dino_vits8"
DEFAULT_OUT = "attnviz-out"
DEFAULT_CMAP = "inferno"
SUMMARY = "summary"
"""Where figures have their command in the name, the one about all images of a run has this."""

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
"""Largest image that is decoded, in pixels: twice the size at which Pillow begins to warn."""

COLUMN_INCHES = 3.35
NARROWEST_INCHES = 2.0
"""Narrower figures cannot hold readable text."""

PAGE_INCHES = 7.0


class Fit(StrEnum):
    """How an image becomes a model input whose sides are multiples of the patch."""

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


class Direction(StrEnum):
    """Which attention of a patch: what it looks at (its row), or what looks at it (its column)."""

    FROM = "from"
    TO = "to"


class RelevanceMethod(StrEnum):
    """How the relevance of a target is carried through the layers; see docs/definitions.md."""

    CHEFER = "chefer"
    GRADIENT_ROLLOUT = "gradient-rollout"
    CONTRIBUTION = "contribution"


class DiscoverMethod(StrEnum):
    """How an object is found; see docs/definitions.md."""

    LOST = "lost"
    TOKENCUT = "tokencut"
    SPECTRAL = "spectral"


class Baseline(StrEnum):
    """What hides cells of an image: its mean colour, the image itself blurred, or black."""

    MEAN = "mean"
    BLUR = "blur"
    BLACK = "black"


class MapKind(StrEnum):
    """The maps that a comparison can show."""

    MEAN = "mean"
    MAX = "max"
    HEAD = "head"
    HEADS = "heads"
    PATCH = "patch"
    ROLLOUT = "rollout"
    SCORE = "score"
    RELEVANCE = "relevance"
    DISCOVER = "discover"
    LOST = "lost"
    SPECTRAL = "spectral"
    MATCH = "match"
    PCA = "pca"
    FOREGROUND = "foreground"
    NORM = "norm"
    COSINE = "cosine"
    ENTROPY = "entropy"
    TO_CLS = "to-cls"
    QUERY_PCA = "q-pca"
    KEY_PCA = "k-pca"
    VALUE_PCA = "v-pca"
    QUERY_NORM = "q-norm"
    KEY_NORM = "k-norm"
    VALUE_NORM = "v-norm"


class Norm(StrEnum):
    """How attention weights become colours: by their logarithm, or as they are."""

    LOG = "log"
    LINEAR = "linear"


class Part(StrEnum):
    """Which of a token's three vectors in attention."""

    QUERY = "q"
    KEY = "k"
    VALUE = "v"


class Descriptor(StrEnum):
    """What describes a patch where patches are matched: one of its vectors, or its token."""

    QUERY = "q"
    KEY = "k"
    VALUE = "v"
    TOKENS = "tokens"


class ImageFormat(StrEnum):
    """File formats of figures."""

    PNG = "png"
    PDF = "pdf"
    SVG = "svg"


class Engine(StrEnum):
    """What joins the stages of a run: this machine's processes, or a Ray cluster."""

    LOCAL = "local"
    RAY = "ray"


@dataclass(frozen=True)
class Percentile:
    """A percentile, 0..100, of all values that share a colour scale; written ``p99``."""

    percent: float

    def __post_init__(self) -> None:
        if not 0 <= self.percent <= 100:
            raise ValueError(f"Percentile.percent is {self.percent}, not in 0..100")

    def __repr__(self) -> str:
        return f"p{self.percent:g}"


def take_choices(values: Any) -> None:
    """Make the members of what a dataclass was given as text: "max" becomes ``Fusion.MAX``.

    Members are compared by identity, so a text left as it is would be taken for another choice.

    Raises:
        ValueError: A text that is not a member.
    """
    for item in fields(values):
        if isinstance(item.default, StrEnum | Query):
            chosen = type(item.default)(getattr(values, item.name))
            object.__setattr__(values, item.name, chosen)
