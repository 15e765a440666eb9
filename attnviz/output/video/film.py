"""MP4, WebM and animated WebP, encoded with PyAV."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
import numpy as np
from av.error import FFmpegError

from attnviz.domain.video import VideoFormat
from attnviz.errors import OutputError
from attnviz.output.record import KEY, to_json
from attnviz.output.video import video_path
from attnviz.output.video.faststart import index_first
from attnviz.output.video.sink import PARTIAL, GrowingFile
from attnviz.output.video.webp import add_record

if TYPE_CHECKING:
    from attnviz.domain import ByteArray, WrittenFile
    from attnviz.output.plan import OutputPlan
    from attnviz.output.record import Made

TICKS = 90_000
"""Time stamps a second: every usual rate is a whole number of them."""
_WEBP_TICKS = 1000

# The number of threads stands in the stream of x264, and changes it: the same on every machine.
_CODECS: dict[VideoFormat, tuple[tuple[str, dict[str, str]], ...]] = {
    VideoFormat.MP4: (
        ("libx264", {"crf": "18", "preset": "veryfast", "threads": "2"}),
        ("libopenh264", {"b": "6M"}),
    ),
    VideoFormat.WEBM: (
        ("libvpx-vp9", {"crf": "24", "b": "0", "deadline": "realtime", "cpu-used": "7"}),
        ("libvpx", {"crf": "10", "b": "4M", "deadline": "realtime", "cpu-used": "7"}),
    ),
    VideoFormat.WEBP: (("libwebp_anim", {"quality": "90", "compression_level": "3"}),),
}
_BT709 = 1
_LIMITED = 1


class FilmSink:
    """A video in a container. H.264 and VP9 as yuv420p, sides even, colours as of BT.709.

    size: (height, width) of the frames; an odd side gets a copy of its last row or column.

    Raises:
        OutputError: No encoder, or it cannot be written.
    """

    def __init__(
        self,
        plan: OutputPlan,
        form: VideoFormat,
        size: tuple[int, int],
        made: Made,
        seconds: float,
    ) -> None:
        self._plan, self._form = plan, form
        self._record = to_json(made)
        self._webp = form is VideoFormat.WEBP
        self._ticks = _WEBP_TICKS if self._webp else TICKS
        self._step = max(1, round(seconds * self._ticks))
        self._last = -1
        self._size = size if self._webp else (size[0] + size[0] % 2, size[1] + size[1] % 2)
        self._file = GrowingFile(plan.folder)
        self._open = True
        try:
            self._container, self._stream = self._begin()
        except (FFmpegError, ValueError, OSError) as error:
            self.abandon()
            raise OutputError(f"{self._path()} cannot be encoded ({error})") from error

    def _path(self, part: str = "") -> Any:
        return video_path(self._plan, self._form, part)

    def _begin(self) -> tuple[Any, Any]:
        name, options = self._codec()
        # FFmpeg's own faststart opens the file by its name a second time; see index_first.
        container: Any = av.open(
            self._file.stream,
            "w",
            format=self._form.value,
            options={"fflags": "bitexact", "movflags": "use_metadata_tags"}
            if self._form is VideoFormat.MP4
            else {"fflags": "bitexact", "loop": "0"}
            if self._webp
            else {"fflags": "bitexact"},
        )
        container.metadata[KEY if self._form is VideoFormat.MP4 else KEY.upper()] = self._record
        stream: Any = container.add_stream(name, options=options)
        stream.height, stream.width = self._size
        stream.pix_fmt = "yuv420p"
        stream.time_base = Fraction(1, self._ticks)
        stream.codec_context.time_base = Fraction(1, self._ticks)
        if not self._webp:
            stream.codec_context.colorspace = _BT709
            stream.codec_context.color_range = _LIMITED
            stream.codec_context.color_primaries = _BT709
            stream.codec_context.color_trc = _BT709
        return container, stream

    def _codec(self) -> tuple[str, dict[str, str]]:
        for name, options in _CODECS[self._form]:
            try:
                av.codec.Codec(name, "w")
            except ValueError:
                continue
            return name, options
        raise ValueError(f"this PyAV has no encoder for {self._form.value}")

    def add(self, pixels: ByteArray, seconds: float) -> None:
        """The next frame (h, w, 3) uint8, shown ``seconds`` after the first."""
        height, width = pixels.shape[:2]
        grown = ((0, self._size[0] - height), (0, self._size[1] - width), (0, 0))
        if any(after for _, after in grown):
            pixels = np.pad(pixels, grown, "edge")
        frame: Any = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
        if not self._webp:
            frame = frame.reformat(
                format="yuv420p", dst_colorspace=_BT709, dst_color_range=_LIMITED
            )
        self._last = max(self._last + 1, round(seconds * self._ticks))
        frame.pts, frame.time_base = self._last, Fraction(1, self._ticks)
        frame.duration = self._step
        self._encode(frame)

    def _encode(self, frame: Any) -> None:
        try:
            for packet in self._stream.encode(frame):
                # The last frame has no successor whose time would end it.
                packet.duration = packet.duration or self._step
                self._container.mux(packet)
        except (FFmpegError, OSError) as error:
            raise OutputError(f"{self._path()} cannot be written ({error})") from error

    def finish(self, *, partial: bool = False) -> tuple[WrittenFile, ...]:
        """Give the video its name; ``partial``: one that says it is not complete."""
        self._open = False
        try:
            self._encode(None)
            self._container.close()
            if self._webp:
                add_record(self._file.stream, self._record)
            elif self._form is VideoFormat.MP4:
                index_first(self._file.stream)
        except (FFmpegError, OSError) as error:
            self._file.abandon()
            raise OutputError(f"{self._path()} cannot be written ({error})") from error
        return (self._file.finish(self._path(PARTIAL if partial else "")),)

    def abandon(self) -> None:
        """Leave nothing; does nothing once the video has its name."""
        if self._open:
            self._open = False
            self._file.abandon()
