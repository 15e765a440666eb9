"""The last stage: what a picture's drawing needs, and the event that its files come to. No torch.

The drawing itself is ``attnviz.stages.draw.render``, whichever process runs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.domain import HeadsMaps, Picture, ScoreMaps, sha256_of
from attnviz.domain.events import Done, Failed
from attnviz.domain.requests import (
    FeaturesRequest,
    HeadsRequest,
    LayersRequest,
    MatrixRequest,
    PatchRequest,
    QkvRequest,
    RelevanceRequest,
    RolloutRequest,
    ScoreRequest,
)
from attnviz.errors import AttnvizError, OutputError
from attnviz.figures import draw, overlay_images
from attnviz.output.data import arrays_of, score_rows
from attnviz.output.record import record_of
from attnviz.output.write import write_array_png, write_csv, write_figures, write_npz

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnviz.domain import ByteArray, DrawStyle, ImageFile, Maps, Provenance, WrittenFile
    from attnviz.domain.requests import CommandRequest, OutputRequest, RunRequest
    from attnviz.output.plan import OutputPlan
    from attnviz.stages.read import Ready


def job_of(request: RunRequest, plan: OutputPlan, ready: Ready, maps: Maps) -> RenderJob:
    """Everything that drawing one picture needs."""
    return RenderJob(
        maps=maps,
        pixels=ready.prepared.image.pixels,
        provenance=ready.provenance,
        style=request.style,
        command=request.command,
        output=request.output,
        plan=plan,
    )


def finish(
    ready: Ready,
    rows: tuple[dict[str, Any], ...],
    notes: tuple[str, ...],
    write: Callable[[], tuple[WrittenFile, ...]],
) -> Done | Failed:
    """The event of one picture. ``rows``: its table; ``write`` gives its files, or the error."""
    try:
        written = write()
    except AttnvizError as error:
        return Failed(str(ready.file.path), about(ready.file, error))
    record = record_of(ready.provenance, written, rows)
    return Done(ready.file, written, record, rows, (*ready.prepared.image.notes, *notes))


def about(file: ImageFile, error: AttnvizError) -> AttnvizError:
    """The error with the picture's name in front, when it does not say it."""
    if str(file.path) in error.message or file.path.name in error.message:
        return error
    return type(error)(f"{file.path.name}: {error.message}", error.hint)


@dataclass(frozen=True, eq=False)
class RenderJob:
    """Everything that a drawing process needs to make one picture's files.

    pixels: (height, width, 3) uint8 of the original picture.
    """

    maps: Maps
    pixels: ByteArray
    provenance: Provenance
    style: DrawStyle
    command: CommandRequest
    output: OutputRequest
    plan: OutputPlan


def draw_options(command: CommandRequest) -> dict[str, Any]:
    """The options of a request that its drawing takes."""
    match command:
        case HeadsRequest():
            return {"threshold": command.threshold}
        case LayersRequest():
            return {"each_head": command.each_head}
        case PatchRequest():
            return {"each_head": command.each_head}
        case MatrixRequest():
            return {"norm": command.norm}
        case (
            RolloutRequest()
            | ScoreRequest()
            | RelevanceRequest()
            | FeaturesRequest()
            | QkvRequest()
        ):
            return {}


def render(job: RenderJob) -> tuple[WrittenFile, ...]:
    """Draw and write one picture's files; the figure last, so that it stands for a complete set.

    Raises:
        OutputError: A file cannot be written, or the figure does not fit into memory.
    """
    try:
        return _render(job)
    except MemoryError as error:
        raise OutputError(
            f"its figure at --dpi {job.style.dpi} does not fit into memory",
            f"try --dpi {max(30, job.style.dpi // 2)}, or fewer --workers",
        ) from error


def _render(job: RenderJob) -> tuple[WrittenFile, ...]:
    provenance, plan, style = job.provenance, job.plan, job.style
    name = provenance.image.replace("\\", "/").rsplit("/", 1)[-1]
    picture = Picture(job.pixels, provenance.geometry, name)
    command = job.command
    written: list[WrittenFile] = []
    beside: dict[str, str | None] = {}
    if job.output.save_data:
        written.append(write_npz(plan.path("npz"), arrays_of(job.maps), provenance))
    if isinstance(command, ScoreRequest) and command.csv and isinstance(job.maps, ScoreMaps):
        written.append(write_csv(plan.path("csv"), score_rows(job.maps), "scores"))
        beside["csv"] = sha256_of(plan.path("csv").read_bytes())
    if isinstance(command, HeadsRequest) and command.overlay and isinstance(job.maps, HeadsMaps):
        pixels = overlay_images(job.maps, picture, style)
        for head, image in zip(job.maps.heads, pixels, strict=True):
            place = plan.path("png", f"head{head}")
            written.append(write_array_png(image, place, provenance, "overlay"))
            beside[f"head{head}.png"] = None
    figures = draw(job.maps, picture, provenance.model, style, **draw_options(command))
    drawn = write_figures(figures, plan, job.output.formats, style.dpi, provenance, beside)
    return (*drawn, *written)
