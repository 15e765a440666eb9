"""The frozen values that travel between the stages, checked where they are made.

Letters: L layers, H heads, N tokens = P prefix + gh * gw patches, Q queries. Height comes before
width in every name and tuple. Arrays are C-contiguous numpy; attention is raw, never scaled for
display. This package imports neither numpy nor torch, so that ``attnviz --help`` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain.choices import (
    COLUMN_INCHES,
    DEFAULT_ALPHA,
    DEFAULT_CMAP,
    DEFAULT_DISCARD_RATIO,
    DEFAULT_DPI,
    DEFAULT_KEEP_RATIO,
    DEFAULT_MASS,
    DEFAULT_MAX_PIXELS,
    DEFAULT_MODEL,
    DEFAULT_OUT,
    DEFAULT_RESIDUAL,
    DEFAULT_TOLERANCE,
    PAGE_INCHES,
    SUMMARY,
    Baseline,
    Descriptor,
    Direction,
    DiscardOrder,
    DiscoverMethod,
    Engine,
    Fit,
    Fusion,
    ImageFormat,
    Interpolation,
    MapKind,
    Norm,
    Part,
    Percentile,
    Positions,
    Precision,
    RelevanceMethod,
    Scale,
    take_choices,
)
from attnviz.domain.comparison import (
    ComparedMap,
    ComparedRow,
)
from attnviz.domain.drawing import (
    DrawStyle,
    Provenance,
    WrittenFile,
)
from attnviz.domain.evolution import (
    EvolutionMaps,
    Rows,
)
from attnviz.domain.explorer import LayerFactors, PairFactors, QueryKeys, RelativeBias
from attnviz.domain.geometry import (
    Box,
    FitGeometry,
    Size,
)
from attnviz.domain.image import (
    FigureImage,
    ImageFile,
    PreparedImage,
    RgbImage,
    sha256_of,
)
from attnviz.domain.kinds import (
    DiscoverMaps,
    FaithfulMaps,
    FeaturesMaps,
    HeadsMaps,
    LayersMaps,
    Maps,
    MatchMaps,
    MatrixMaps,
    PatchMaps,
    QkvMaps,
    RelevanceMaps,
    RolloutMaps,
    RolloutOptions,
    ScoreMaps,
)
from attnviz.domain.model import (
    ModelInfo,
)
from attnviz.domain.query import Query
from attnviz.domain.shard import Shard

if TYPE_CHECKING:
    from attnviz.domain.arrays import BoolArray, ByteArray, FloatArray, IntArray

__all__ = [
    "COLUMN_INCHES",
    "DEFAULT_ALPHA",
    "DEFAULT_CMAP",
    "DEFAULT_DISCARD_RATIO",
    "DEFAULT_DPI",
    "DEFAULT_KEEP_RATIO",
    "DEFAULT_MASS",
    "DEFAULT_MAX_PIXELS",
    "DEFAULT_MODEL",
    "DEFAULT_OUT",
    "DEFAULT_RESIDUAL",
    "DEFAULT_TOLERANCE",
    "PAGE_INCHES",
    "SUMMARY",
    "Baseline",
    "BoolArray",
    "Box",
    "ByteArray",
    "ComparedMap",
    "ComparedRow",
    "Descriptor",
    "Direction",
    "DiscardOrder",
    "DiscoverMaps",
    "DiscoverMethod",
    "DrawStyle",
    "Engine",
    "EvolutionMaps",
    "FaithfulMaps",
    "FeaturesMaps",
    "FigureImage",
    "Fit",
    "FitGeometry",
    "FloatArray",
    "Fusion",
    "HeadsMaps",
    "ImageFile",
    "ImageFormat",
    "IntArray",
    "Interpolation",
    "LayerFactors",
    "LayersMaps",
    "MapKind",
    "Maps",
    "MatchMaps",
    "MatrixMaps",
    "ModelInfo",
    "Norm",
    "PairFactors",
    "Part",
    "PatchMaps",
    "Percentile",
    "Positions",
    "Precision",
    "PreparedImage",
    "Provenance",
    "QkvMaps",
    "Query",
    "QueryKeys",
    "RelativeBias",
    "RelevanceMaps",
    "RelevanceMethod",
    "RgbImage",
    "RolloutMaps",
    "RolloutOptions",
    "Rows",
    "Scale",
    "ScoreMaps",
    "Shard",
    "Size",
    "WrittenFile",
    "sha256_of",
    "take_choices",
]
