"""From maps to matplotlib figures and overlay images.

``draw`` is the one door. matplotlib is imported when something is drawn, torch never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnviz.domain.kinds import kind_of
from attnviz.domain.options import resolve

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
    from attnviz.domain.kinds import CommandRequest

__all__ = ["draw", "draw_comparison", "draw_distributions", "draw_mean_scores", "overlay_images"]


def draw(
    maps: Maps, image: FigureImage, model: ModelInfo, style: DrawStyle, **options: Any
) -> tuple[Figure, ...]:
    """The figure of these maps, as pages; usually one.

    options: those of the kind of figure, its ``drawn_with``. Another one raises TypeError.
    """
    figures: tuple[Figure, ...] = resolve(kind_of(maps).draw)(maps, image, model, style, **options)
    return figures


def draw_comparison(rows: Sequence[ComparedRow], style: DrawStyle) -> tuple[Figure, ...]:
    """A row per image and model, a column per map, as pages; usually one."""
    from attnviz.figures.compare import draw_comparison as comparison

    return comparison(rows, style)


def overlay_images(
    maps: Maps, image: FigureImage, style: DrawStyle, request: CommandRequest
) -> dict[str, ByteArray]:
    """The image with each map over it, at its own size, without axes or text.

    By the part of its file name: ``head3``. Only of kinds with ``overlays``.
    """
    reference = kind_of(maps).overlays
    if reference is None:
        raise TypeError(f"{kind_of(maps).name} has no overlays")
    overlays: dict[str, ByteArray] = resolve(reference)(maps, image, style, request)
    return overlays


def draw_mean_scores(
    scores: Sequence[Mapping[str, Any]], images: int, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """Means and standard errors over many images of what ``faithful`` measures, by map."""
    from attnviz.figures.mean_scores import draw_mean_scores as drawing

    return drawing(scores, images, model, style)


def draw_distributions(
    distributions: Mapping[str, Mapping[tuple[int, int], FloatArray]],
    images: int,
    limit: float | None,
    model: ModelInfo,
    style: DrawStyle,
) -> tuple[Figure, ...]:
    """The distributions of numbers of many images, by quantity and by layer and head."""
    from attnviz.figures.summary import draw_distributions as drawing

    return drawing(distributions, images, limit, model, style)
