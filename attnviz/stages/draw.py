"""The last stage: the figure of one image, and the event that reports it. No torch.

``render`` does the drawing, in whichever process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.domain import FigureImage
from attnviz.domain.events import Done, Failed
from attnviz.domain.kinds import kind_of
from attnviz.domain.options import resolve
from attnviz.errors import AttnvizError, OutputError
from attnviz.figures import draw, overlay_images
from attnviz.output.record import record_of, with_files
from attnviz.output.write import write_array_png, write_figures, write_npz

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnviz.domain import ByteArray, DrawStyle, ImageFile, Maps, Provenance, WrittenFile
    from attnviz.domain.kinds import CommandRequest
    from attnviz.domain.requests import OutputRequest, RunRequest
    from attnviz.output.plan import OutputPlan
    from attnviz.stages.read import PreparedJob


def job_of(request: RunRequest, plan: OutputPlan, job: PreparedJob, maps: Maps) -> RenderJob:
    """Everything that is needed to draw one image's figure."""
    return RenderJob(
        maps=maps,
        pixels=job.prepared.image.pixels,
        provenance=job.provenance,
        style=request.style,
        command=request.command,
        output=request.output,
        plan=plan,
    )


def finish(
    job: PreparedJob,
    rows: tuple[dict[str, Any], ...],
    notes: tuple[str, ...],
    write: Callable[[], tuple[WrittenFile, ...]],
) -> Done | Failed:
    """The event of one image. ``rows``: its table; ``write``: gives its files, or raises."""
    try:
        written = write()
    except AttnvizError as error:
        return Failed(str(job.file.path), about(job.file, error))
    record = record_of(job.provenance, written, rows)
    return Done(job.file, written, record, rows, (*job.prepared.image.notes, *notes))


def about(file: ImageFile, error: AttnvizError) -> AttnvizError:
    """The error with the image's name in front, unless the message contains it."""
    if str(file.path) in error.message or file.path.name in error.message:
        return error
    return type(error)(f"{file.path.name}: {error.message}", error.hint)


@dataclass(frozen=True, eq=False)
class RenderJob:
    """Everything that a drawing process needs to write one image's files.

    pixels: (height, width, 3) uint8, the original image.
    """

    maps: Maps
    pixels: ByteArray
    provenance: Provenance
    style: DrawStyle
    command: CommandRequest
    output: OutputRequest
    plan: OutputPlan

    def run(self) -> tuple[WrittenFile, ...]:
        """As ``render``."""
        return render(self)


def image_name(provenance: Provenance) -> str:
    """What a figure calls its image: the last part of its path, on whatever system it was made."""
    return provenance.image.replace("\\", "/").rsplit("/", 1)[-1]


def render(job: RenderJob) -> tuple[WrittenFile, ...]:
    """Draw and write one image's files.

    The figure comes last, or the first overlay where only overlays are written, so that it stands
    for a complete set.

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
    provenance, plan, style, request = job.provenance, job.plan, job.style, job.command
    image = FigureImage(job.pixels, provenance.geometry, image_name(provenance))
    kind = kind_of(request)
    written: list[WrittenFile] = []
    beside: dict[str, str | None] = {}
    if job.output.save_data:
        written.append(write_npz(plan.path("npz"), job.maps.arrays(), provenance))
    if not request.draws_figure:
        return (*_write_overlays(job, image), *written)
    for switch, sidecar in kind.sidecars.items():
        if getattr(request, switch):
            files = resolve(sidecar.write)(job.maps, image, style, request, provenance, plan)
            written += [file for file, _ in files]
            beside |= {plan.tail(file.path): digest for file, digest in files}
    options = {name: getattr(request, name) for name in kind.drawn_with}
    figures = draw(job.maps, image, provenance.model, style, **options)
    drawn = write_figures(figures, plan, job.output.formats, style.dpi, provenance, beside)
    return (*drawn, *written)


def _write_overlays(job: RenderJob, image: FigureImage) -> list[WrittenFile]:
    """Only the overlays. The record of the first names the others, and it is written last."""
    overlays = overlay_images(job.maps, image, job.style, job.command)
    first, *others = overlays
    lead = with_files(job.provenance, dict.fromkeys(f"{part}.png" for part in others))
    written = [
        write_array_png(
            overlays[part], job.plan.path("png", part), lead if part == first else job.provenance
        )
        for part in (*others, first)
    ]
    return [written[-1], *written[:-1]]
