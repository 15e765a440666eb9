"""The frames of MP4, MOV, WebM, MKV and AVI files, read with PyAV. Nothing is kept in memory."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import av
import numpy as np
from av.error import FFmpegError
from PIL import Image

from attnviz.domain import Size
from attnviz.domain.video import Frame, FrameTime
from attnviz.errors import ImageError
from attnviz.images.names import printable
from attnviz.images.open import DAMAGED_HINT, check_pixels, reason
from attnviz.storage import local_copy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from attnviz.domain import ByteArray, ImageFile
    from attnviz.domain.requests import InputRequest

_THREADS = 2
_HDR = (16, 18)
"""Transfer characteristics of ITU-T H.273: PQ and HLG."""


class FilmFrames:
    """The frames of one video file.

    Raises:
        ImageError: It cannot be opened, or has no picture.
    """

    def __init__(self, file: ImageFile, inputs: InputRequest) -> None:
        self.notes: list[str] = []
        self._path = file.path
        self._name = printable(file.path)
        self._most = inputs.max_pixels
        self._stamps: dict[int, FrameTime] = {}
        with self._opened() as (container, stream):
            self._declared = int(stream.frames)
            size = Size(stream.codec_context.height, stream.codec_context.width)
            check_pixels(size, self._name, self._most)
            if any(each.type == "audio" for each in container.streams):
                self.notes.append("its sound is not kept")

    def times(self) -> tuple[FrameTime, ...]:
        """Every frame, by the time stamps of its packets."""
        stamps: list[int] = []
        with self._opened() as (container, stream):
            base = float(stream.time_base or 1)
            duration = container.duration
            try:
                for packet in container.demux(stream):
                    stamp = packet.dts if packet.pts is None else packet.pts
                    if stamp is not None and packet.size and not packet.is_discard:
                        stamps.append(int(stamp))
            except FFmpegError:
                pass  # what lies before the damage is there
        if not stamps:
            raise ImageError(f"{self._name} holds no frame", DAMAGED_HINT)
        stamps = sorted(set(stamps))
        first = stamps[0]
        times = tuple(FrameTime(n, (stamp - first) * base) for n, stamp in enumerate(stamps))
        self._stamps = dict(zip(stamps, times, strict=True))
        self._note_missing_tail(times, None if duration is None else duration / av.time_base)
        return times

    def _note_missing_tail(self, times: Sequence[FrameTime], seconds: float | None) -> None:
        step = times[-1].seconds / (len(times) - 1) if len(times) > 1 else 0.0
        reached = times[-1].seconds + step
        if self._declared > len(times):
            self.notes.append(
                f"its end is missing: frames 0 to {len(times) - 1} of {self._declared} are there"
            )
        elif not self._declared and seconds and step and seconds - reached > max(2 * step, 0.25):
            self.notes.append(f"its end is missing: {reached:.2f} of {seconds:.2f} s are there")

    def frames(self, wanted: Sequence[FrameTime]) -> Iterator[Frame]:
        """These frames, decoded one by one; decoding begins at the key frame before the first."""
        if not wanted:
            return
        waiting = {each.index: each for each in wanted}
        last = wanted[-1].index
        read = 0
        with self._opened() as (container, stream):
            stream.thread_type = "AUTO"
            stream.codec_context.thread_count = _THREADS
            self._seek(container, stream, wanted[0])
            try:
                for count, decoded in enumerate(container.decode(stream)):
                    time = self._time_of(decoded, count)
                    if decoded.is_corrupt or time is None:
                        continue
                    if time.index in waiting:
                        del waiting[time.index]
                        yield Frame(time, self._pixels(decoded))
                        read += 1
                    if time.index >= last:
                        return
            except FFmpegError as error:
                if not read:
                    raise ImageError(
                        f"{self._name} is damaged: {reason(error)}", DAMAGED_HINT
                    ) from error
        if not read:
            raise ImageError(f"{self._name} holds no frame that can be decoded", DAMAGED_HINT)
        if waiting:
            self.notes.append(
                f"damaged at frame {min(waiting)}: {read} of {len(wanted)} frames could be decoded"
            )

    def _seek(self, container: Any, stream: Any, first: FrameTime) -> None:
        stamp = next((stamp for stamp, each in self._stamps.items() if each == first), None)
        if stamp is not None and first.index > 0:
            try:
                container.seek(stamp, stream=stream, backward=True)
            except FFmpegError:
                container.seek(0)

    def _time_of(self, decoded: Any, count: int) -> FrameTime | None:
        if decoded.pts is not None:
            return self._stamps.get(int(decoded.pts))
        return next((each for each in self._stamps.values() if each.index == count), None)

    def _pixels(self, decoded: Any) -> ByteArray:
        if int(decoded.color_trc) in _HDR and len(self.notes) < 3:
            self._note("its colours are of high dynamic range, and shown without tone mapping")
        if any(part.is_alpha for part in decoded.format.components):
            rgba = Image.fromarray(decoded.to_ndarray(format="rgba"), "RGBA")
            ground = Image.new("RGB", rgba.size, "white")
            ground.paste(rgba, mask=rgba.getchannel("A"))
            self._note("transparency laid on white")
            pixels = np.asarray(ground)
        else:
            pixels = decoded.to_ndarray(format="rgb24")
        return np.ascontiguousarray(np.rot90(self._square(pixels), _quarter_turns(decoded)))

    def _square(self, pixels: ByteArray) -> ByteArray:
        """The frame with square pixels: wider, or higher, than it is stored."""
        if self._aspect == 1:
            return pixels
        height, width = pixels.shape[:2]
        if self._aspect > 1:
            width = round(width * self._aspect)
        else:
            height = round(height / self._aspect)
        check_pixels(Size(height, width), self._name, self._most)
        return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        try:
            container: Any = av.open(str(local_copy(self._path)), metadata_errors="replace")
        except (FFmpegError, OSError, ValueError) as error:
            raise ImageError(
                f"{self._name} cannot be read as a video: {reason(error)}", DAMAGED_HINT
            ) from error
        with container:
            if not container.streams.video:
                raise ImageError(f"{self._name} holds no pictures", "give a video file")
            stream = container.streams.video[0]
            aspect = stream.sample_aspect_ratio
            self._aspect = float(aspect) if aspect else 1.0
            yield container, stream


def _quarter_turns(decoded: Any) -> int:
    """How often the stored frame is turned by 90 degrees, counter-clockwise, to be upright."""
    return round((decoded.rotation or 0) / 90) % 4
