"""Videos, animated images and folders of numbered frames, as frames one after the other.

Content decides what a file is, not its suffix. PyAV (the extra ``video``) reads films; Pillow reads
GIF, WebP, APNG and multi-page TIFF, which are videos only where that is asked for.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

from attnviz.domain.video import SAME_FORM, VideoFormat
from attnviz.errors import ImageError
from attnviz.images.formats import IMAGE_SUFFIXES
from attnviz.images.names import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from attnviz.domain import ImageFile
    from attnviz.domain.requests import InputRequest
    from attnviz.domain.video import Frame, FrameTime, VideoRequest

VIDEO_SUFFIXES = frozenset((".mp4", ".m4v", ".mov", ".webm", ".mkv", ".avi"))
FOLDER_FPS = 25
"""Frames a second of what has no times of its own: a folder, the pages of a TIFF file."""

_ANIMATED = frozenset((".gif", ".webp", ".png", ".apng", ".tif", ".tiff"))
_IMAGE_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1", b"avif")
_BLOCK = 1 << 20


class FrameSource(Protocol):
    """The frames of one input.

    notes: what a user should know of it, complete once the frames have been read.
    """

    notes: list[str]

    def times(self) -> tuple[FrameTime, ...]:
        """Every frame that the input says it has, in order; nothing is decoded for films."""

    def frames(self, wanted: Sequence[FrameTime]) -> Iterator[Frame]:
        """These frames, in rising order; fewer where the input is damaged, with a note.

        Raises:
            ImageError: Not even the first of them can be read, or its size is not allowed.
        """


def is_film(path: Path) -> bool:
    """Whether a file is a video of a form that PyAV reads, by its first bytes."""
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return False
    try:
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            head = stream.read(16)
    except (OSError, ValueError):
        return False
    if head[4:8] == b"ftyp":
        return head[8:12] not in _IMAGE_BRANDS
    movie = head[4:8] in (b"moov", b"mdat", b"wide", b"free")
    return movie or head[:4] == b"\x1a\x45\xdf\xa3" or (head[:4], head[8:12]) == (b"RIFF", b"AVI ")


def is_video(file: ImageFile, request: VideoRequest) -> bool:
    """Whether an input is drawn as a video: a film, or what ``--as-video`` makes one."""
    path = file.path
    if not request.as_video:
        return is_film(path)
    if path.is_dir():
        return True
    if path.suffix.lower() not in _ANIMATED:
        return is_film(path)
    from attnviz.images.frames_image import is_animated

    return is_animated(path)


def open_frames(file: ImageFile, inputs: InputRequest, request: VideoRequest) -> FrameSource:
    """The frames of a video.

    Raises:
        ImageError: It cannot be read, or PyAV is not installed.
    """
    if file.path.is_dir():
        from attnviz.images.frames_image import FolderFrames

        return FolderFrames(file, inputs, request.fps or FOLDER_FPS)
    if file.path.suffix.lower() in _ANIMATED:
        from attnviz.images.frames_image import AnimatedFrames

        return AnimatedFrames(file, inputs, request.fps or FOLDER_FPS)
    try:
        from attnviz.images.frames_film import FilmFrames
    except ImportError as error:
        raise ImageError(
            f"{printable(file.path)} is a video, and reading it needs the package av",
            "pip install 'attnviz[video]'",
        ) from error
    return FilmFrames(file, inputs)


def has_own_times(path: Path) -> bool:
    """Whether the frames of an input have times; else ``--fps`` gives them."""
    return not path.is_dir() and path.suffix.lower() not in (".tif", ".tiff")


def form_of(path: Path, request: VideoRequest) -> VideoFormat:
    """The form in which a video of this input is written."""
    same = VideoFormat.MP4 if path.is_dir() else SAME_FORM.get(path.suffix.lower())
    return request.format or same or VideoFormat.MP4


def video_digest(path: Path) -> str:
    """Hex SHA-256 of a video's bytes; of a folder, of those of its frames in order.

    Raises:
        OSError: It cannot be read.
    """
    digest = hashlib.sha256()
    if path.is_dir():
        from attnviz.images.frames_image import frame_files

        for each in frame_files(path):
            digest.update(video_digest(each).encode())
        return digest.hexdigest()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
