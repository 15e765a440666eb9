"""What happens during a run, one value at a time, in the order in which it happens.

The pipeline yields one ``Started``, then one ``Done``, ``Skipped`` or ``Failed`` for every image;
``collect_outputs`` adds one ``RunFilesWritten`` where a run leaves files beside its figures.
Whoever reads them (the command line, a script) decides what to print; the pipeline prints nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain import ImageFile, ModelInfo, WrittenFile
    from attnviz.errors import AttnvizError


@dataclass(frozen=True)
class Started:
    """The model is loaded and the images are known.

    ``total``: images that an event will follow for, inputs that gave nothing included.
    ``notes``: what a user should know once, such as the weights that were left over.
    ``skipped``: paths met on a search that are no images, each with the reason.
    """

    total: int
    model: ModelInfo
    notes: tuple[str, ...] = ()
    skipped: tuple[tuple[Path, str], ...] = ()


@dataclass(frozen=True)
class Step:
    """Part of the work on a single image begins: ``done`` of ``total`` parts are behind it.

    ``name``: what is done now, e.g. "computing the rollout".
    """

    name: str
    done: int
    total: int


@dataclass(frozen=True)
class FrameDone:
    """A frame of a video is in its file: ``done`` of ``total``.

    ``table``: its numbers, one row.
    """

    file: ImageFile
    done: int
    total: int
    table: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Interrupted:
    """A video was stopped: ``written`` holds its first ``done`` frames, up to ``seconds``."""

    file: ImageFile
    written: tuple[WrittenFile, ...]
    done: int
    total: int
    seconds: float


@dataclass(frozen=True)
class Done:
    """One image's files stand complete.

    ``record``: the JSON record (model, image, options, versions). ``table``: the numbers of the
    figure, one row a head, layer or query, as JSON-ready values under column names.
    ``images``: of a figure of several, all of them; a note then names the image that it is about.
    """

    file: ImageFile
    written: tuple[WrittenFile, ...]
    record: dict[str, Any] = field(default_factory=dict)
    table: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    images: tuple[ImageFile, ...] = ()


@dataclass(frozen=True)
class Skipped:
    """One image was left as it is, for instance because its figures exist already.

    ``table``: as of ``Done``, where the run keeps the numbers of all images; else empty.
    """

    file: ImageFile
    reason: str
    table: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Failed:
    """One image, or one input as the user wrote it, gave nothing; the run goes on."""

    name: str
    error: AttnvizError

    def __post_init__(self) -> None:
        # The frames that an error passed hold the bytes of its file, and an error and its frames
        # often hold each other: until a late garbage collection, thousands of files' worth.
        for error in (self.error, self.error.__cause__, self.error.__context__):
            if error is not None:
                error.__traceback__ = None


@dataclass(frozen=True)
class RunFilesWritten:
    """The images are through, and what the run leaves about all of them stands complete."""

    written: tuple[WrittenFile, ...]


UP_TO_DATE = "made from the same image, weights and options"
"""Why an image whose figures stand already is skipped."""

Event = Started | Step | FrameDone | Interrupted | Done | Skipped | Failed | RunFilesWritten
