"""The frames of animated images, read with Pillow, and folders of numbered frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.domain import ImageFile
from attnviz.domain.video import Frame, FrameTime
from attnviz.errors import AttnvizError, ImageError
from attnviz.images.colour import to_srgb
from attnviz.images.formats import IMAGE_SUFFIXES
from attnviz.images.names import natural_key, printable
from attnviz.images.open import DAMAGED_HINT, Opened, open_image, read_bytes, reason
from attnviz.images.quiet import quiet
from attnviz.images.read import decoded_rgb, read_input

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from attnviz.domain.requests import InputRequest

_LEAST_SECONDS = 0.02
"""Shorter times are shown as a tenth of a second, as browsers do."""
_INSTEAD_SECONDS = 0.1


def is_animated(path: Path) -> bool:
    """Whether an image file has several frames. What cannot be read is no animation."""
    try:
        if not path.is_file():
            return False
        with quiet():
            opened = open_image(path.read_bytes(), path, printable(path))
            return int(getattr(opened.image, "n_frames", 1)) > 1
    except Exception:  # noqa: BLE001 - as many kinds as there are kinds of damage
        return False


def frame_files(folder: Path) -> list[Path]:
    """The images of a folder, 2.png before 10.png; hidden ones are left out."""
    files = [
        path
        for path in folder.iterdir()
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
    ]
    return sorted(files, key=lambda path: natural_key(path.relative_to(folder)))


class AnimatedFrames:
    """The frames of a GIF, WebP, APNG or TIFF file. fps: of pages, which have no times.

    Raises:
        ImageError: It cannot be opened.
    """

    def __init__(self, file: ImageFile, inputs: InputRequest, fps: float) -> None:
        self.notes: list[str] = []
        self._file = file
        self._inputs = inputs
        self._fps = fps
        self._name = printable(file.path)
        self._data = read_bytes(file.path, self._name, inputs.max_pixels)

    def times(self) -> tuple[FrameTime, ...]:
        """Every frame; the times of an animation are in its frames, which are read for them."""
        times: list[FrameTime] = []
        seconds = 0.0
        for index, image in self._images():
            times.append(FrameTime(index, seconds))
            seconds += self._shown(image)
        return tuple(times)

    def frames(self, wanted: Sequence[FrameTime]) -> Iterator[Frame]:
        """These frames; those before them are decoded too, since each builds on the last."""
        waiting = {each.index: each for each in wanted}
        for index, image in self._images():
            time = waiting.pop(index, None)
            if time is None:
                continue
            # The reader of wide PNG files decodes their first frame from the bytes.
            rgb, notes = to_srgb(image) if image.format == "PNG" else self._rgb(image)
            self.notes += [note for note in notes if note not in self.notes]
            yield Frame(time, np.array(rgb))
            if not waiting:
                return

    def _rgb(self, image: Any) -> tuple[Any, tuple[str, ...]]:
        opened = Opened(image, self._data, ())
        return decoded_rgb(opened, None, self._inputs.bands, self._inputs.value_range)

    def _images(self) -> Iterator[tuple[int, Any]]:
        with quiet():
            image: Any = open_image(self._data, self._file.path, self._name).image
            index = 0
            while True:
                try:
                    image.seek(index)
                    image.load()
                except EOFError:
                    return
                except Exception as error:
                    if not index:
                        raise ImageError(
                            f"{self._name} is damaged: {reason(error)}", DAMAGED_HINT
                        ) from error
                    note = f"damaged at frame {index}: the frames before it are drawn"
                    self.notes += [note] if note not in self.notes else []
                    return
                yield index, image
                index += 1

    def _shown(self, image: Any) -> float:
        if image.format == "TIFF":
            return 1 / self._fps
        seconds = float(image.info.get("duration", 0)) / 1000
        return seconds if seconds >= _LEAST_SECONDS else _INSTEAD_SECONDS


class FolderFrames:
    """The images of a folder as the frames of one video, ``fps`` a second.

    Raises:
        ImageError: There are none.
    """

    def __init__(self, file: ImageFile, inputs: InputRequest, fps: float) -> None:
        self.notes: list[str] = []
        self._inputs = inputs
        self._fps = fps
        self._name = printable(file.path)
        self._files = frame_files(file.path)
        if not self._files:
            raise ImageError(f"{self._name} holds no images", "name a folder of numbered frames")

    def times(self) -> tuple[FrameTime, ...]:
        """Every image."""
        return tuple(FrameTime(index, index / self._fps) for index in range(len(self._files)))

    def frames(self, wanted: Sequence[FrameTime]) -> Iterator[Frame]:
        """These images; the video ends before the first that cannot be read."""
        for count, time in enumerate(wanted):
            path = self._files[time.index]
            try:
                image = read_input(ImageFile(path, path), self._inputs)
            except AttnvizError as error:
                if not count:
                    raise
                self.notes.append(f"{error.message}: the frames before it are drawn")
                return
            self.notes += [note for note in image.notes if note not in self.notes]
            yield Frame(time, image.pixels)
