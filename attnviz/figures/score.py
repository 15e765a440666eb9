"""The figure of the ``score`` command: token scores and the patches that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain import Scale
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import (
    layer_text,
    layers_text,
    prefix_shares,
    sheet_with_caption,
)
from attnviz.figures.parts.colour_bars import shared_bar
from attnviz.figures.parts.histogram import split_histogram
from attnviz.figures.parts.map_table import OWN_SCALES
from attnviz.figures.parts.panels import (
    Panel,
    dimmed_raster,
    image_panel,
    map_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.pruning_table import draw_steps
from attnviz.figures.parts.scale import common_limits, scale_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import (
        DrawStyle,
        FigureImage,
        FloatArray,
        ModelInfo,
        ScoreMaps,
    )

_LFE = ("Low-frequency energy", "LFE")
_KEPT, _DROPPED = "#0072b2", "#b9b9b9"


def draw_score(
    maps: ScoreMaps, image: FigureImage, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """The image, the score and its two terms, the kept patches, the distribution of the score.

    With the low-frequency energy, that and equation 8 in place of the two terms. Of a pruning run,
    the score and the kept patches of every layer.
    """
    if maps.steps:
        return _draw_pruning(maps, image, model, style)
    factors = _factors(maps)
    shared = common_limits([maps.score, *factors.values()], style)
    kept, cells = int(maps.kept.sum()), maps.kept.size
    parts = [
        layer_text(maps.layer, model),
        _score_text(maps),
        _heads_text(maps),
        scale_text(style),
        f"kept: the {kept} highest of {cells} patches",
        _prefix_text(maps, model),
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    ratio = f"{100 * maps.keep_ratio:g} %"
    panels = [
        image_panel(image),
        map_panel(("Score",), maps.score, style, shared),
        *(map_panel(titles, values, style, shared) for titles, values in factors.items()),
        # Relative to the mean patch, and not a product of weights: never on their scale.
        *([] if maps.lfe is None else [map_panel(_LFE, maps.lfe, style, None)]),
        Panel(
            (f"Kept {ratio} of patches", f"Kept {ratio}"),
            dimmed_raster(image, maps.kept),
        ),
    ]
    panel_rows(sheet, panels, panel_aspect(image))
    if shared:
        shared_bar(sheet, shared, "Score")
    heading = f"Patches by score: kept {theme.share(kept / cells)}"
    split_histogram(sheet, maps.score, maps.kept, (_KEPT, _DROPPED), heading)
    return sheet.figures()


def _draw_pruning(
    maps: ScoreMaps, image: FigureImage, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """The score and the kept patches of every layer of a pruning run."""
    layers = tuple(step.layer for step in maps.steps)
    scale = f"colours: {OWN_SCALES}" if style.scale is Scale.PANEL else scale_text(style)
    parts = [
        f"patches pruned in {layers_text(layers, model)}, each on the patches that are left",
        _score_text(maps),
        _heads_text(maps),
        f"{scale}, grey: dropped before",
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    draw_steps(sheet, maps.steps, image)
    return sheet.figures()


def _factors(maps: ScoreMaps) -> dict[tuple[str, ...], FloatArray]:
    """What the score is made of, on its scale: its two terms, or equation 8 beside the energy."""
    if maps.lfe is not None:
        return {("Attention score", "Attention"): maps.attention_score}
    return {("CLS term",): maps.cls_term, ("Patch term",): maps.patch_term}


def _score_text(maps: ScoreMaps) -> str:
    """What the score is, as the foot states it."""
    if maps.lfe is None:
        return "score = CLS term + patch term (VTC-LFC)"
    return (
        "score = attention score times low-frequency energy (LFE) of each patch, relative to the "
        "mean patch (VTC-LFC)"
    )


def _heads_text(maps: ScoreMaps) -> str:
    return f"mean of {len(maps.heads)} heads" if len(maps.heads) > 1 else f"head {maps.heads[0]}"


def _prefix_text(maps: ScoreMaps, model: ModelInfo) -> str:
    """The share of equation 8 that is on CLS and registers."""
    shares = maps.prefix_shares
    if shares is None or not shares.size:
        return ""
    what = "score" if maps.lfe is None else "attention score"
    return f"not drawn: of the {what} of all tokens " + ", ".join(prefix_shares(shares, model))
