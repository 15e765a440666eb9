"""The files beside a figure that switches of a request ask for.

Each function writes them and returns every file with what the figure's record keeps of it: the
SHA-256 of its content, or None where it carries a record of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain import sha256_of
from attnviz.figures import overlay_images
from attnviz.output.write import write_array_png, write_csv

if TYPE_CHECKING:
    from attnviz.domain import (
        DrawStyle,
        FigureImage,
        HeadsMaps,
        MatchMaps,
        Provenance,
        ScoreMaps,
        WrittenFile,
    )
    from attnviz.domain.kinds import CommandRequest
    from attnviz.output.plan import OutputPlan

    Sidecars = list[tuple[WrittenFile, str | None]]


def write_overlays(
    maps: HeadsMaps,
    image: FigureImage,
    style: DrawStyle,
    request: CommandRequest,
    provenance: Provenance,
    plan: OutputPlan,
) -> Sidecars:
    """The image with each head's map over it, at its own size: ``STEM.heads.head3.png``."""
    overlays = overlay_images(maps, image, style, request)
    return [
        (write_array_png(pixels, plan.path("png", part), provenance), None)
        for part, pixels in overlays.items()
    ]


def write_pairs(
    maps: MatchMaps,
    _image: FigureImage,
    _style: DrawStyle,
    _request: CommandRequest,
    _made: Provenance,
    plan: OutputPlan,
) -> Sidecars:
    """The pairs, one row each: ``STEM.match.csv``."""
    written = write_csv(plan.path("csv"), maps.pair_rows(), "pairs")
    return [(written, sha256_of(written.path.read_bytes()))]


def write_scores(
    maps: ScoreMaps,
    _image: FigureImage,
    _style: DrawStyle,
    _request: CommandRequest,
    _made: Provenance,
    plan: OutputPlan,
) -> Sidecars:
    """The scores, one row a patch: ``STEM.score.csv``."""
    written = write_csv(plan.path("csv"), maps.patch_rows(), "scores")
    return [(written, sha256_of(written.path.read_bytes()))]
