"""From maps to matplotlib figures and overlay pictures.

``draw`` is the one door. matplotlib is imported when something is drawn, torch never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnviz.domain import (
    FeaturesMaps,
    HeadsMaps,
    LayersMaps,
    MatrixMaps,
    PatchMaps,
    QkvMaps,
    RelevanceMaps,
    RolloutMaps,
    ScoreMaps,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import (
        ByteArray,
        ComparedRow,
        DrawStyle,
        FigureImage,
        FloatArray,
        Maps,
        ModelInfo,
    )

__all__ = ["draw", "draw_comparison", "draw_distributions", "overlay_images"]


def draw(  # noqa: PLR0911 - one a kind of maps
    maps: Maps, image: FigureImage, model: ModelInfo, style: DrawStyle, **options: Any
) -> tuple[Figure, ...]:
    """The figure of these maps, as pages; usually one.

    options: those of the kind of figure: ``threshold`` (heads), ``each_head`` (layers, patch),
    ``norm`` (matrix). Another one raises TypeError.
    """
    match maps:
        case HeadsMaps():
            from attnviz.figures.heads import draw_heads

            return draw_heads(maps, image, model, style, **options)
        case LayersMaps():
            from attnviz.figures.layers import draw_layers

            return draw_layers(maps, image, model, style, **options)
        case RolloutMaps():
            from attnviz.figures.rollout import draw_rollout

            return draw_rollout(maps, image, model, style, **options)
        case PatchMaps():
            from attnviz.figures.patch import draw_patch

            return draw_patch(maps, image, model, style, **options)
        case ScoreMaps():
            from attnviz.figures.score import draw_score

            return draw_score(maps, image, model, style, **options)
        case RelevanceMaps():
            from attnviz.figures.relevance import draw_relevance

            return draw_relevance(maps, image, model, style, **options)
        case FeaturesMaps():
            from attnviz.figures.features import draw_features

            return draw_features(maps, image, model, style, **options)
        case MatrixMaps():
            from attnviz.figures.matrix import draw_attention_matrix

            return draw_attention_matrix(maps, image, model, style, **options)
        case QkvMaps():
            from attnviz.figures.qkv import draw_qkv

            return draw_qkv(maps, image, model, style, **options)


def draw_comparison(rows: Sequence[ComparedRow], style: DrawStyle) -> tuple[Figure, ...]:
    """Pictures and models down, maps across, as pages; usually one."""
    from attnviz.figures.compare import draw_comparison as comparison

    return comparison(rows, style)


def overlay_images(maps: HeadsMaps, image: FigureImage, style: DrawStyle) -> tuple[ByteArray, ...]:
    """The picture with each head's map over it, at the picture's own size, no axes, no text."""
    from attnviz.figures.parts.overlay import overlay_images as images

    return images(maps, image, style)


def draw_distributions(
    spreads: Mapping[str, Mapping[tuple[int, int], FloatArray]],
    pictures: int,
    limit: float | None,
    model: ModelInfo,
    style: DrawStyle,
) -> tuple[Figure, ...]:
    """How numbers of many pictures are distributed, by quantity, and by layer and head."""
    from attnviz.figures.summary import draw_distributions as drawing

    return drawing(spreads, pictures, limit, model, style)
