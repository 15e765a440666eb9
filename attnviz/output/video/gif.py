"""GIF, one frame after the other, under one palette."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from attnviz.domain.video import VideoFormat
from attnviz.output.atomic import as_output_error
from attnviz.output.record import to_json
from attnviz.output.video import video_path
from attnviz.output.video.sink import PARTIAL, GrowingFile

if TYPE_CHECKING:
    from attnviz.domain import ByteArray, WrittenFile
    from attnviz.output.plan import OutputPlan
    from attnviz.output.record import Made

COLOURS = 255
PALETTE_FRAMES = 16
"""The palette is that of so many frames; they are kept until it is known."""
_PALETTE_PIXELS = 4_000_000


class GifSink:
    """A looping GIF. All frames have the palette of the first ones, so that no colour flickers.

    seconds: how long the last frame is shown; the others, until the next one. GIF counts time in
    hundredths of a second.
    """

    def __init__(self, plan: OutputPlan, made: Made, seconds: float) -> None:
        self._plan = plan
        self._record = to_json(made)
        self._seconds = seconds
        self._file = GrowingFile(plan.folder)
        self._open = True
        self._palette: Any = None
        self._held: list[Any] = []
        self._times: list[float] = []
        self._waiting: tuple[Any, float] | None = None

    def add(self, pixels: ByteArray, seconds: float) -> None:
        """The next frame (h, w, 3) uint8, shown ``seconds`` after the first."""
        from PIL.Image import fromarray

        image = fromarray(pixels)
        if self._palette is not None:
            self._take(image, seconds)
            return
        self._held.append(image)
        self._times.append(seconds)
        if len(self._held) == PALETTE_FRAMES:
            self._settle()

    def _settle(self) -> None:
        """Make the palette, and write the frames that waited for it."""
        from PIL import Image

        first = self._held[0]
        share = (_PALETTE_PIXELS / (first.width * first.height * len(self._held))) ** 0.5
        small = [each.reduce(max(1, round(1 / share))) for each in self._held]
        strip = Image.new("RGB", (small[0].width, sum(each.height for each in small)))
        top = 0
        for each in small:
            strip.paste(each, (0, top))
            top += each.height
        self._palette = strip.quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
        self._write_head(first.width, first.height)
        for image, seconds in zip(self._held, self._times, strict=True):
            self._take(image, seconds)
        self._held.clear()

    def _write_head(self, width: int, height: int) -> None:
        """Screen, palette of 256 colours, the loop without an end, and the record as a comment."""
        palette = bytes(self._palette.getpalette()).ljust(768, b"\0")[:768]
        comment = self._record.encode()
        blocks = (comment[i : i + 255] for i in range(0, len(comment), 255))
        self._write(
            b"GIF89a"
            + struct.pack("<HHBBB", width, height, 0xF7, 0, 0)
            + palette
            + b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
            + b"\x21\xfe"
            + b"".join(bytes([len(block)]) + block for block in blocks)
            + b"\0"
        )

    def _take(self, image: Any, seconds: float) -> None:
        """Write the frame before this one, whose time ends now."""
        if self._waiting is not None:
            before, begun = self._waiting
            self._frame(before, round(100 * seconds) - round(100 * begun))
        self._waiting = image, seconds

    def _frame(self, image: Any, hundredths: int) -> None:
        from PIL import GifImagePlugin, Image

        paletted = image.quantize(palette=self._palette, dither=Image.Dither.NONE)
        blocks = GifImagePlugin.getdata(paletted, duration=10 * max(2, hundredths))
        self._write(b"".join(blocks))

    def _write(self, data: bytes) -> None:
        try:
            self._file.stream.write(data)
        except OSError as error:
            raise as_output_error(video_path(self._plan, VideoFormat.GIF), error) from error

    def finish(self, *, partial: bool = False) -> tuple[WrittenFile, ...]:
        """Give the video its name; ``partial``: one that says it is not complete."""
        self._open = False
        if self._palette is None:
            self._settle()
        if self._waiting is not None:
            self._frame(self._waiting[0], round(100 * self._seconds))
        self._write(b"\x3b")
        path = video_path(self._plan, VideoFormat.GIF, PARTIAL if partial else "")
        return (self._file.finish(path),)

    def abandon(self) -> None:
        """Leave nothing; does nothing once the video has its name."""
        if self._open:
            self._open = False
            self._file.abandon()
