"""Videos as files: frames are encoded as they come, and nothing of them is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain.video import VideoFormat
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.output.plan import OutputPlan
    from attnviz.output.record import Made
    from attnviz.output.video.sink import VideoSink


def video_path(plan: OutputPlan, form: VideoFormat, part: str = "") -> Path:
    """Where a video of this form goes: ``STEM.COMMAND.mp4``, or the folder ``STEM.COMMAND``."""
    return plan.path("" if form is VideoFormat.FRAMES else form.value, part)


def record_path(plan: OutputPlan, form: VideoFormat) -> Path:
    """The file that carries the record: the video, or the last frame of a folder."""
    path = video_path(plan, form)
    return path / "frames.json" if form is VideoFormat.FRAMES else path


def open_sink(
    plan: OutputPlan, form: VideoFormat, size: tuple[int, int], made: Made, seconds: float
) -> VideoSink:
    """A video that takes frames. size: (height, width). seconds: one frame at the usual pace.

    Raises:
        UsageError: The form needs PyAV, and it is not installed.
        OutputError: It cannot be written.
    """
    if form is VideoFormat.FRAMES:
        from attnviz.output.video.folder import FolderSink

        return FolderSink(plan, made)
    if form is VideoFormat.GIF:
        from attnviz.output.video.gif import GifSink

        return GifSink(plan, made, seconds)
    try:
        from attnviz.output.video.film import FilmSink
    except ImportError as error:
        raise UsageError(
            f"--video-format {form.value} needs the package av, which is not installed",
            "pip install 'attnviz[video]', or take --video-format gif or frames",
        ) from error
    return FilmSink(plan, form, size, made, seconds)
