"""Complete files or none: everything is written to a temporary file and then renamed."""

from __future__ import annotations

import errno
import os
import platform
import time
import uuid
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from attnviz.domain import sha256_of
from attnviz.errors import OutputError
from attnviz.storage import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_TEMPORARY = ".attnviz-"


_STALE_SECONDS = 3600.0

_TRIES = 20
"""Runs that begin together in a folder that is not there each make it and remove it again."""


@contextmanager
def complete_file(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content appears under ``path`` when the block ends, not at all if it fails.

    The folder is made if needed, and does not stay without the file. Content reaches the disk
    before its name does, so that not even a power failure leaves a half file under it.

    Raises:
        OutputError: It cannot be written: no permission, disk full, a folder of that name.
    """
    try:
        if isinstance(path, Address):
            with path.complete() as stream:
                yield stream
            return
        with _temporary(path.parent) as (stream, temporary):
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            stream.close()
            temporary.replace(path)
    except OSError as error:
        raise as_output_error(path, error) from error


@contextmanager
def growing_file(folder: Path) -> Iterator[tuple[BinaryIO, Callable[[Path], None]]]:
    """A hidden file in the folder, and what gives it a name there; without one it does not stay.

    Raises:
        OSError: It cannot be written.
    """
    with _temporary(folder) as (stream, temporary):

        def move(path: Path) -> None:
            stream.flush()
            os.fsync(stream.fileno())
            stream.close()
            temporary.replace(path)

        yield stream, move


def probe(folder: Path) -> None:
    """Write a few bytes into the folder and remove them, with every folder made for it.

    Raises:
        OSError: That does not work.
    """
    if isinstance(folder, Address):
        folder.probe()
        return
    with _temporary(folder) as (stream, _):
        stream.write(b"attnviz")
        stream.flush()
        os.fsync(stream.fileno())


def sweep(folder: Path) -> None:
    """Remove partial files of killed runs from the folder, unless they may still be in use.

    A file of this machine goes when the process that wrote it is gone; those of other machines,
    which may share the folder, when they are old.
    """
    if isinstance(folder, Address):
        return  # an upload that was cut off leaves nothing in most stores, and the rest tell no age
    oldest = time.time() - _STALE_SECONDS
    for partial in folder.glob(f"{_TEMPORARY}*.tmp"):
        with suppress(OSError):
            if _orphaned(partial.name) or partial.stat().st_mtime < oldest:
                partial.unlink()


@contextmanager
def _temporary(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A new hidden file in the folder, gone at the end unless it was moved.

    Its name says who writes it: machine, process, and a random part. Folders that were made for it
    go with it when nothing else is in them.
    """
    owner = f"{_machine()}-{os.getpid()}"
    path = folder / f"{_TEMPORARY}{owner}-{uuid.uuid4().hex[:12]}.tmp"
    missing = _missing_folders(folder)
    try:
        with _opened(path) as stream:
            yield stream, path
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            for made in missing:
                made.rmdir()


def _missing_folders(folder: Path) -> list[Path]:
    """The folders that have to be made for this one, innermost first."""
    missing = []
    while not folder.exists() and folder != folder.parent:
        missing.append(folder)
        folder = folder.parent
    return missing


def _opened(path: Path) -> BinaryIO:
    """A new file in a folder that is made if needed, and again if another run just removed it."""
    for _ in range(_TRIES):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")
        except FileNotFoundError:
            continue
        except FileExistsError:
            # A folder that was there and is gone a moment later is also told so; a file stays.
            if any(each.exists() and not each.is_dir() for each in path.parents):
                raise
    return path.open("xb")


@lru_cache
def _machine() -> str:
    """This machine, and this process table of it: a container has one of its own."""
    with suppress(OSError):
        return sha256_of(f"{platform.node()} {Path('/proc/self/ns/pid').readlink()}".encode())[:8]
    return sha256_of(platform.node().encode())[:8]


def _orphaned(name: str) -> bool:
    """Whether a temporary file was written by a process of this machine that is gone."""
    machine, _, rest = name.removeprefix(_TEMPORARY).partition("-")
    process = rest.partition("-")[0]
    if os.name != "posix" or machine != _machine() or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def as_output_error(path: Path, error: OSError) -> OutputError:
    """A failed write as the error that the command line reports."""
    hints = {
        errno.ENOSPC: "free some space, or choose another folder with --out",
        errno.EDQUOT: "free some space, or choose another folder with --out",
        errno.EACCES: "choose another folder with --out",
        errno.EROFS: "choose another folder with --out",
    }
    reason = error.strerror or str(error)
    return OutputError(f"{path} cannot be written ({reason})", hints.get(error.errno or 0, ""))
