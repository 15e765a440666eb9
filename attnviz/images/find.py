"""Inputs as the user wrote them become a list of image files, in a stable order.

- A file named on its own is always taken, whatever its suffix; reading it decides.
- A folder is searched with its sub-folders. Known image suffixes are taken in any case; hidden
  names and everything else are listed as skipped. Order is natural: 2.png before 10.png.
- A glob (``*``, ``?``, ``[...]``, ``**``) is tried when no path of that name exists. Its matches
  are filtered like a folder's, unless the pattern itself ends in a suffix.
- An address (``s3://...``) is a file, a folder or a glob of a store.
- ``-`` is a list of paths on standard input, separated by NUL bytes if it has any, else by lines.

Pipes, sockets and devices are never opened. Links are followed; a folder is entered once, so that
loops end. The same name given twice is taken once; a link beside its target is an image too.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from attnviz.domain import SUMMARY, ImageFile
from attnviz.domain.kinds import FIGURE_COMMANDS
from attnviz.errors import AttnvizError, ImageError
from attnviz.images.formats import IMAGE_SUFFIXES
from attnviz.images.names import natural_key, printable
from attnviz.storage import Address, is_address, path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAGIC = frozenset("*?[")
_WRITTEN_MARKS = frozenset(f".{command}" for command in FIGURE_COMMANDS)
_WRITTEN_SUFFIXES = frozenset((".png", ".mp4", ".webm", ".gif", ".webp"))
_WRITTEN_SUMMARIES = tuple(f"{mark}.{SUMMARY}." for mark in sorted(_WRITTEN_MARKS))


@dataclass(frozen=True)
class FoundImages:
    """The files that the inputs name.

    ``skipped``: paths met on a search that are not images, each with the reason in a few words.
    ``missing``: inputs without any image, as written, each with its error.
    """

    files: tuple[ImageFile, ...]
    skipped: tuple[tuple[Path, str], ...] = ()
    missing: tuple[tuple[str, AttnvizError], ...] = ()


def find_images(
    inputs: Sequence[str],
    *,
    stdin: TextIO | None = None,
    exclude: Path | None = None,
    folders: bool = False,
) -> FoundImages:
    """All images that the inputs name.

    ``exclude`` is the output folder: searches do not enter it. Where it is itself searched, files
    named like the figures of an earlier run (``cat.heads.png``) are skipped instead. Nothing is
    raised for an input; it becomes an entry of ``missing``. ``folders``: a folder that is named is
    one file, a video of numbered frames.
    """
    search = _Search(exclude, folders=folders)
    for written in inputs:
        if written != "-":
            search.take_input(written)
            continue
        listed = _read_list(sys.stdin if stdin is None else stdin)
        if not listed:
            search.miss("-", "lists no paths", "write one path a line")
        for path in listed:
            search.take_path(path)
    return search.result()


def _read_list(stream: TextIO) -> list[str]:
    """The paths of a list. Read as bytes where that is possible: a name need not be valid text."""
    buffer = getattr(stream, "buffer", None)
    text = stream.read() if buffer is None else os.fsdecode(buffer.read())
    lines = text.split("\0") if "\0" in text else text.removeprefix("\ufeff").split("\n")
    names = (line.removesuffix("\r") for line in lines)
    return [name for name in names if name.strip()]


class _Search:
    """One search over all inputs: collects files, skipped paths and missing inputs, in order."""

    def __init__(self, exclude: Path | None, *, folders: bool = False) -> None:
        self._folders = folders
        self._exclude = None if exclude is None else Path(os.path.realpath(exclude))
        self._resolved_folders: dict[Path, Path] = {}
        self._files: dict[Path, ImageFile] = {}
        self._skipped: dict[Path, str] = {}
        self._missing: list[tuple[str, AttnvizError]] = []

    def result(self) -> FoundImages:
        return FoundImages(
            tuple(self._files.values()), tuple(self._skipped.items()), tuple(self._missing)
        )

    def miss(self, written: str, reason: str, hint: str) -> None:
        name = "standard input" if written == "-" else printable(written) or "''"
        self._missing.append((written, ImageError(f"{name} {reason}", hint)))

    def take_input(self, written: str) -> None:
        """Take what the user wrote: a path if there is one of that name, else perhaps a glob."""
        if is_address(written):
            self._take_address(written, _first_magic(written))
            return
        written = str(path_of(written)) if written else written
        if _MAGIC.isdisjoint(written) or os.path.lexists(written):
            self.take_path(written)
        else:
            self._take_glob(written)

    def take_path(self, written: str) -> None:
        """Take a path literally: a folder is searched, a file is taken whatever its suffix."""
        if not written:
            self.miss(written, "is an empty name", "name a file, a folder or a glob")
            return
        if is_address(written):
            self._take_address(written, None)
            return
        path = path_of(written)
        try:
            mode = path.stat().st_mode
        except (OSError, ValueError) as error:
            self.miss(written, _why_not(path, error), "check the path")
            return
        if stat.S_ISDIR(mode) and self._folders:
            self._add(path, Path(path.resolve().name))
        elif stat.S_ISDIR(mode):
            if not self._take_folder(path, base=path):
                self._miss_images(written, "holds no images")
        elif stat.S_ISREG(mode):
            self._add(path, Path(path.name))
        else:
            self.miss(written, "is a pipe, socket or device", "save the image to a file")

    def _take_address(self, written: str, magic: int | None) -> None:
        """Take a file of a store, all images of a folder there, or the matches of a glob."""
        base, pattern = Address(written), ""
        if magic is not None:
            cut = written.rindex("/", 0, magic)
            base, pattern = Address(written[:cut]), written[cut + 1 :]
        try:
            if not pattern and stat.S_ISREG(base.stat().st_mode):
                self._add(base, Path(base.name))
                return
            names = sorted(base.below(pattern), key=lambda name: natural_key(Path(name)))
        except OSError as error:
            self.miss(written, _why_not(base, error), "check the address")
            return
        any_suffix = not _MAGIC.intersection(Path(pattern).suffix) and Path(pattern).suffix != ""
        images = 0
        for name in names:
            if any(part.startswith(".") for part in Path(name).parts):
                self._skipped[base / name] = "hidden"
            elif not any_suffix and Path(name).suffix.lower() not in IMAGE_SUFFIXES:
                self._skipped[base / name] = "no image suffix"
            elif self._is_own_output(base / name):
                self._skipped[base / name] = "a figure of an earlier run"
            else:
                self._add(base / name, Path(name))
                images += 1
        if not images:
            self._miss_images(written, "matches no images" if pattern else "holds no images")

    def _take_glob(self, pattern: str) -> None:
        parts = Path(pattern).parts
        fixed = next(n for n, part in enumerate(parts) if not _MAGIC.isdisjoint(part))
        base, moving = Path(*parts[:fixed]), Path(*parts[fixed:])
        try:
            matches = sorted(set(base.glob(str(moving))), key=natural_key)
        except (OSError, ValueError, NotImplementedError) as error:
            self.miss(pattern, f"is not a valid glob: {error}", "** stands alone between slashes")
            return
        any_suffix = _MAGIC.isdisjoint(moving.suffix) and moving.suffix != ""
        hidden_too = any(part.startswith(".") for part in moving.parts)
        images = 0
        for match in matches:
            inner = match.relative_to(base)
            if not hidden_too and any(part.startswith(".") for part in inner.parts):
                self._skipped[match] = "hidden"
            elif os.path.isdir(match):  # noqa: PTH112 - Path's raises where it may not look
                images += self._take_folder(match, base)
            else:
                images += self._offer(match, base, any_suffix=any_suffix)
        if not matches:
            self.miss(pattern, "does not exist, and as a glob matches nothing", "check the path")
        elif not images:
            self._miss_images(pattern, "matches no images")

    def _miss_images(self, written: str, reason: str) -> None:
        # An earlier error about this input says more.
        if all(earlier != written for earlier, _ in self._missing):
            endings = "known suffixes are .jpg, .png, .tif, .webp and the like"
            self.miss(written, reason, f"{endings}; name a file itself to have it tried")

    def _take_folder(self, folder: Path, base: Path) -> int:
        """Search a folder and all below it; the number of images there."""
        images, entered = 0, set[tuple[int, int]]()
        pending = self._entries(folder, entered)
        while pending:
            entry = pending.pop()
            path = Path(entry.path)
            if entry.name.startswith("."):
                self._skipped[path] = "hidden"
            elif not os.path.isdir(path):  # noqa: PTH112 - Path's raises where it may not look
                images += self._offer(path, base, any_suffix=False)
            elif self._exclude is not None and self._resolved(path) == self._exclude:
                self._skipped[path] = "the output folder"
            else:
                pending += self._entries(path, entered)
        return images

    def _entries(self, folder: Path, entered: set[tuple[int, int]]) -> list[os.DirEntry[str]]:
        """What a folder holds, last name first; nothing where it was entered before."""
        try:
            status = folder.stat()
            identity = (status.st_dev, status.st_ino)
            if identity in entered:
                return []
            entered.add(identity)
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError as error:
            self.miss(str(folder), _why_not(folder, error), "check its permissions")
            return []
        return sorted(entries, key=lambda entry: natural_key(Path(entry.name)), reverse=True)

    def _offer(self, path: Path, base: Path, *, any_suffix: bool) -> int:
        """Take a file that a search met, if it is an image: 1, else 0."""
        if not any_suffix and path.suffix.lower() not in IMAGE_SUFFIXES:
            self._skipped[path] = "no image suffix"
            return 0
        if self._is_own_output(path):
            self._skipped[path] = "a figure of an earlier run"
            return 0
        try:
            mode = path.stat().st_mode
        except OSError as error:
            self.miss(str(path), _why_not(path, error), "mend or remove it")
            return 0
        if not stat.S_ISREG(mode):
            self._skipped[path] = "a pipe, socket or device"
            return 0
        self._add(path, path.relative_to(base))
        return 1

    def _is_own_output(self, path: Path) -> bool:
        if self._exclude is None or path.suffix.lower() not in _WRITTEN_SUFFIXES:
            return False
        summary = f".{path.name}".startswith(_WRITTEN_SUMMARIES)
        if not summary and _WRITTEN_MARKS.isdisjoint(path.suffixes[:-1]):
            return False
        return self._resolved(path.parent).is_relative_to(self._exclude)

    def _add(self, path: Path, relative: Path) -> None:
        # The folder is resolved, the file is not: a link to an image has a name of its own.
        resolved = self._resolved(path.parent) / path.name
        self._files.setdefault(resolved, ImageFile(path, relative))

    def _resolved(self, folder: Path) -> Path:
        """The folder without links. Remembered: a folder of thousands asks thousands of times."""
        if folder not in self._resolved_folders:
            self._resolved_folders[folder] = Path(os.path.realpath(folder))
        return self._resolved_folders[folder]


def _first_magic(written: str) -> int | None:
    """Where a glob begins in an address."""
    return next((index for index, sign in enumerate(written) if sign in _MAGIC), None)


def _why_not(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        linked = not isinstance(path, Address) and path.is_symlink()
        return "is a link to nothing" if linked else "does not exist"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be opened: {error.strerror.lower()}"
    return f"is not a valid path: {error}"
