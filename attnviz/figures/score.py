"""The figure of the ``score`` command: token scores and the patches that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import layer_text, prefix_shares, sheet_with_caption
from attnviz.figures.parts.colour_bars import shared_bar
from attnviz.figures.parts.histogram import split_histogram
from attnviz.figures.parts.panels import (
    Panel,
    dimmed_raster,
    image_panel,
    map_panel,
    panel_aspect,
    panel_rows,
)
from attnviz.figures.parts.scale import common_limits, scale_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import (
        DrawStyle,
        FigureImage,
        ModelInfo,
        ScoreMaps,
    )

_KEPT, _DROPPED = "#0072b2", "#b9b9b9"


def draw_score(
    maps: ScoreMaps, image: FigureImage, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """The image, the score and its two terms, the kept patches, the distribution of the score."""
    shared = common_limits([maps.score, maps.cls_term, maps.patch_term], style)
    kept, cells = int(maps.kept.sum()), maps.kept.size
    parts = [
        layer_text(maps.layer, model),
        "score = CLS term + patch term (VTC-LFC)",
        f"mean of {len(maps.heads)} heads" if len(maps.heads) > 1 else f"head {maps.heads[0]}",
        scale_text(style),
        f"kept: the {kept} highest of {cells} patches",
        _prefix_text(maps, model),
    ]
    sheet = sheet_with_caption(model, image, style, parts)
    ratio = f"{100 * maps.keep_ratio:g} %"
    panels = [
        image_panel(image),
        map_panel(("Score",), maps.score, style, shared),
        map_panel(("CLS term",), maps.cls_term, style, shared),
        map_panel(("Patch term",), maps.patch_term, style, shared),
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


def _prefix_text(maps: ScoreMaps, model: ModelInfo) -> str:
    """The share of the score that is on CLS and registers."""
    shares = maps.prefix_shares
    if shares is None or not shares.size:
        return ""
    return "not drawn: of the score of all tokens " + ", ".join(prefix_shares(shares, model))
