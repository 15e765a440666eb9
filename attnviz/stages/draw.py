"""The last stage: what a picture's drawing needs, and the event that its files come to. No torch.

The drawing itself is ``attnviz.render.render``, whichever process runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnviz.errors import AttnvizError
from attnviz.events import Done, Failed
from attnviz.output.record import record_of
from attnviz.render import RenderJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnviz.domain import ImageFile, Maps, WrittenFile
    from attnviz.output.plan import OutputPlan
    from attnviz.requests import RunRequest
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
