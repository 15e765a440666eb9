"""What takes the frames of a video, and the file that it grows in."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO, Protocol

from attnviz.domain import WrittenFile
from attnviz.output.atomic import as_output_error, complete_file, growing_file
from attnviz.storage import Address

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain import ByteArray

PARTIAL = "partial"
"""The part in the name of a video that was interrupted."""
KIND = "video"


class VideoSink(Protocol):
    """A video that is being written. Every method raises OutputError where it cannot be."""

    def add(self, pixels: ByteArray, seconds: float) -> None:
        """The next frame (h, w, 3) uint8, shown ``seconds`` after the first."""

    def finish(self, *, partial: bool = False) -> tuple[WrittenFile, ...]:
        """Give the video its name; ``partial``: one that says it is not complete."""

    def abandon(self) -> None:
        """Leave nothing; does nothing once the video has its name."""


class GrowingFile:
    """A seekable hidden file beside its future place, or a temporary one for a store."""

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self._folder = folder
        self.stream: BinaryIO
        try:
            if isinstance(folder, Address):
                spool = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the stack
                self.stream = self._stack.enter_context(spool)
                self._move = None
            else:
                self.stream, self._move = self._stack.enter_context(growing_file(folder))
        except OSError as error:
            raise as_output_error(folder, error) from error

    def finish(self, path: Path) -> WrittenFile:
        """The file under its name."""
        try:
            if self._move is None:
                self.stream.seek(0)
                with complete_file(path) as target:
                    shutil.copyfileobj(self.stream, target)
            else:
                self._move(path)
        except OSError as error:
            raise as_output_error(path, error) from error
        finally:
            self._stack.close()
        return WrittenFile(path, KIND)

    def abandon(self) -> None:
        """Remove it."""
        self._stack.close()
