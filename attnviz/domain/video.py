"""Videos: which frames are taken, and the form in which they are written."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_dtype, check_shape
from attnviz.domain.choices import take_choices
from attnviz.domain.forms import choice, number
from attnviz.domain.options import Form, option, switch
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.domain.arrays import ByteArray
    from attnviz.domain.comparison import MapSpec


class VideoFormat(StrEnum):
    """Forms of videos that are written: files, or a folder of numbered PNG files."""

    MP4 = "mp4"
    WEBM = "webm"
    GIF = "gif"
    WEBP = "webp"
    FRAMES = "frames"


SAME_FORM = {".webm": VideoFormat.WEBM, ".gif": VideoFormat.GIF, ".webp": VideoFormat.WEBP}
"""The form of a video that is drawn of an input with this suffix; of all others it is MP4."""

FrameRange = tuple[int | None, int | None, int | None]
"""First frame, the one behind the last, and the step, as in a slice of Python."""


def _read_range(name: str, text: str) -> FrameRange:
    parts = text.split(":")
    hint = "write FIRST:END:STEP as in Python, for example 0:300:2, :100 or ::5"
    try:
        numbers = [int(part) if part.strip() else None for part in parts]
    except ValueError:
        raise UsageError(f"{name}: {text!r} is not a range of frames", hint) from None
    if not 2 <= len(numbers) <= 3:
        raise UsageError(f"{name}: {text!r} is not a range of frames", hint)
    first, end, step = (*numbers, None)[:3]
    if any(each is not None and each < 0 for each in (first, end)) or (
        step is not None and step < 1
    ):
        raise UsageError(f"{name}: {text!r} has a negative number, or a step below 1", hint)
    return first, end, step


def _write_range(value: FrameRange) -> str:
    first, end, step = ("" if each is None else str(each) for each in value)
    return f"{first}:{end}:{step}" if step else f"{first}:{end}"


FRAMES = Form(read=_read_range, write=_write_range, metavar="FIRST:END:STEP")
PANELS = Form(write=lambda specs: ",".join(map(str, specs)), metavar="MAP,...")
SECONDS = number("SECONDS", least=0)


@dataclass(frozen=True)
class VideoRequest:
    """What is drawn of a video, and how. Without a video among the inputs, nothing may be given.

    ``panel`` None: the whole figure is a frame; else these maps over the picture, at its own size.
    ``smooth``: maps are means over so many frames, the frame in their middle.

    Raises:
        UsageError: Options that exclude each other.
    """

    as_video: bool = switch(
        "Take animated images as videos, and each input folder as one video of numbered frames."
    )
    frames: FrameRange | None = option(
        None, FRAMES, "Frames of a video, counted from 0.", show="all"
    )
    fps: float | None = option(
        None, number("N", above=0), "Take at most so many frames of each second.", show="all"
    )
    start: float | None = option(None, SECONDS, "Begin here.", show="the first frame")
    end: float | None = option(None, SECONDS, "End before this.", show="the last frame")
    panel: tuple[MapSpec, ...] | None = option(
        None,
        PANELS,
        "Only these maps, over the picture at the video's own size: mean,head:3,rollout.",
        show="the whole figure",
        check="attnviz.cli.map_names:parse_panels",
    )
    over: bool = switch("With --panel: the maps alone, without the plain picture beside them.")
    smooth: int | None = option(
        None,
        number("N", least=2, most=1000, type=int),
        "Draw means of the maps over N frames.",
        show="each frame by itself",
    )
    follow: bool = switch(
        "Of patch: each patch moves to the one with the nearest key in the next frame."
    )
    format: VideoFormat | None = option(
        None,
        choice(VideoFormat),
        "Form of the videos that are written.",
        name="video-format",
        show="that of the input: webm, gif, webp, or else mp4",
        recorded=False,
    )

    def __post_init__(self) -> None:
        take_choices(self)
        if self.over and self.panel is None:
            raise UsageError("--over needs --panel", "for example --panel mean --over")
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise UsageError(f"--end {self.end:g} is not behind --start {self.start:g}")

    @property
    def given(self) -> tuple[str, ...]:
        """The options, other than ``as_video``, that have a value."""
        names = [each.name for each in fields(self) if getattr(self, each.name) != each.default]
        return tuple(
            "video-format" if name == "format" else name for name in names if name != "as_video"
        )


@dataclass(frozen=True)
class FrameTime:
    """A frame of a video: its index, from 0, and its time in seconds after the first."""

    index: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Frame:
    """A decoded frame, upright, in sRGB, with square pixels.

    pixels: (height, width, 3) uint8.
    """

    time: FrameTime
    pixels: ByteArray

    def __post_init__(self) -> None:
        check_shape("Frame", "pixels", self.pixels, (None, None, 3))
        check_dtype("Frame", "pixels", self.pixels, "uint8")


def chosen_frames(times: tuple[FrameTime, ...], request: VideoRequest) -> tuple[FrameTime, ...]:
    """The frames that a request takes, in order: first its range, then its times, then its rate.

    With ``fps``, frame k is the first one that is shown at or after k / fps seconds behind the
    first that is taken; no frame is taken twice.

    Raises:
        UsageError: There are none.
    """
    start, end = request.start or 0.0, float("inf") if request.end is None else request.end
    ranged = times if request.frames is None else times[slice(*request.frames)]
    chosen = [each for each in ranged if start <= each.seconds < end]
    if request.fps is not None and chosen:
        chosen = _thinned(chosen, request.fps)
    if not chosen:
        last = times[-1].seconds if times else 0.0
        raise UsageError(
            "no frame is left by --frames, --start and --end",
            f"it has {len(times)} frames, the last at {last:.2f} s",
        )
    return tuple(chosen)


def _thinned(times: list[FrameTime], fps: float) -> list[FrameTime]:
    kept: list[FrameTime] = []
    wanted = 0
    for each in times:
        # A microsecond for the rounding of time stamps.
        tick = int((each.seconds - times[0].seconds + 1e-6) * fps)
        if not kept or tick >= wanted:
            kept.append(each)
            wanted = tick + 1
    return kept
