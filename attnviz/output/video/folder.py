"""A folder of numbered PNG files, each with the record."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from attnviz.domain.video import VideoFormat
from attnviz.output.atomic import complete_file
from attnviz.output.record import to_json
from attnviz.output.video import video_path
from attnviz.output.video.sink import KIND
from attnviz.output.write import write_array_png

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain import ByteArray, WrittenFile
    from attnviz.output.plan import OutputPlan
    from attnviz.output.record import Made

RECORD = "frames.json"
"""Record and times of the frames; written last, so that it stands for a complete set."""


class FolderSink:
    """Frames as ``STEM.COMMAND/000000.png`` and so on; those of an earlier run are replaced."""

    def __init__(self, plan: OutputPlan, made: Made) -> None:
        self._folder: Path = video_path(plan, VideoFormat.FRAMES)
        self._made = made
        self._written: list[WrittenFile] = []
        self._seconds: list[float] = []
        with suppress(OSError):
            (self._folder / RECORD).unlink(missing_ok=True)

    def add(self, pixels: ByteArray, seconds: float) -> None:
        """The next frame (h, w, 3) uint8, shown ``seconds`` after the first."""
        path = self._folder / f"{len(self._written):06d}.png"
        self._written.append(write_array_png(pixels, path, self._made, KIND))
        self._seconds.append(round(seconds, 6))

    def finish(self, *, partial: bool = False) -> tuple[WrittenFile, ...]:
        """Remove later frames of an earlier run, and write the record; not of a partial set."""
        count = len(self._written)
        with suppress(OSError):
            while (later := self._folder / f"{count:06d}.png").exists():
                later.unlink()
                count += 1
        if not partial:
            record = {**json.loads(to_json(self._made)), "seconds": self._seconds}
            with complete_file(self._folder / RECORD) as stream:
                stream.write(json.dumps(record, sort_keys=True).encode())
        return tuple(self._written)

    def abandon(self) -> None:
        """Frames that stand are complete pictures, and stay."""
