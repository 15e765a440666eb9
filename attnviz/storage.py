"""Files in stores outside the file system, written ``scheme://...`` and reached through fsspec.

An ``Address`` is a path whose file operations go to a store: what reads or writes paths takes it as
it is. Only what this package does with paths is there. fsspec is imported when an address is given,
and the scheme's own package (``s3fs``, ``gcsfs``) by fsspec. ``file://`` is a path, not an address.

What a user writes becomes a path through ``path_of``, never through ``Path``: ``Path("s3://b/x")``
would silently name a folder ``s3:`` of this machine.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
import stat as file_kinds
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
"""Two letters at least: ``C://`` is a drive."""

_LOCAL = ("file", "local")
ATOMIC = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "r2"})
"""Object stores: an object appears when its upload is complete, and moving would be copying."""


def is_address(written: str) -> bool:
    """Whether a text names a file or folder in a store."""
    match = _ADDRESS.match(written)
    return match is not None and match[1] not in _LOCAL


def path_of(written: str | Path) -> Path:
    """What the user wrote, as a path or an address."""
    text = str(written)
    if is_address(text):
        return Address(text)
    match = _ADDRESS.match(text)
    return Path(text[match.end() :] if match else text)


def same_file(one: Path, other: Path) -> bool:
    """Whether both are there and are one file, under whatever names."""
    if isinstance(one, Address) or isinstance(other, Address):
        return str(one) == str(other) and one.exists()
    return one.exists() and other.exists() and one.samefile(other)


def local_copy(path: Path) -> Path:
    """A file on this machine: the path itself, or a copy of what is at an address.

    Copies keep the names of their file and folder. They are made again when what the store says of
    the file has changed, and go when the process ends.

    Raises:
        OSError: It cannot be read, or not written here.
    """
    if not isinstance(path, Address):
        return path
    import hashlib

    digest = hashlib.sha256(str(path.parent).encode()).hexdigest()[:16]
    copy: Path = _copies() / digest / path.parent.name / path.name
    version = path.version()
    if _versions.get(copy) != version:
        copy.parent.mkdir(parents=True, exist_ok=True)
        partial = copy.with_name(f"{uuid.uuid4().hex}.tmp")
        path.download(partial)
        partial.replace(copy)
        _versions[copy] = version
    return copy


_versions: dict[Path, str] = {}
"""Which version of its file each copy is of."""


@lru_cache
def _copies() -> Path:
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="attnviz-copies-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class Address(type(Path())):  # type: ignore[misc]
    """A file or folder in a store. Errors of the store are ``OSError``, as those of a disk."""

    def __str__(self) -> str:
        # As a path it has one slash behind the scheme; every part of it does.
        scheme, _, rest = super().__str__().replace("\\", "/").partition(":")
        return f"{scheme}://{rest.lstrip('/')}"

    def __fspath__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[type[Address], tuple[str]]:
        return type(self), (str(self),)

    def absolute(self) -> Address:
        """Itself: a store has no current folder."""
        return self

    def resolve(self, *_strict: Any, **_more: Any) -> Address:
        """Itself: a store has no links."""
        return self

    def _store(self) -> tuple[Any, str]:
        """The file system of this address in fsspec, and the path there."""
        from fsspec.core import url_to_fs

        store, path = url_to_fs(str(self))
        return store, path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002
        """Kind and size; nothing else is known of all stores."""
        with _store_errors():
            store, path = self._store()
            facts = store.info(path)
        kind = file_kinds.S_IFDIR if facts["type"] == "directory" else file_kinds.S_IFREG
        return os.stat_result((kind, 0, 0, 1, 0, 0, facts.get("size") or 0, 0, 0, 0))

    def is_file(self) -> bool:
        """Whether there is something that can be read."""
        with _store_errors():
            store, path = self._store()
            return bool(store.isfile(path))

    def exists(self, *_follow: Any, **_symlinks: Any) -> bool:
        """Whether there is something."""
        with _store_errors():
            store, path = self._store()
            return bool(store.exists(path))

    def is_dir(self) -> bool:
        """Whether it is a folder with something in it."""
        with _store_errors():
            store, path = self._store()
            return bool(store.isdir(path))

    def open(self, mode: str = "rb", *_buffering: Any, **_text: Any) -> Any:
        """A stream to read. Writing goes through ``complete``."""
        if mode != "rb":
            raise io.UnsupportedOperation(f"{self} can only be opened to read bytes")
        return io.BytesIO(self.read_bytes())

    def read_bytes(self) -> bytes:
        """All of it."""
        with _store_errors():
            store, path = self._store()
            return bytes(store.cat_file(path))

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """All of it as text."""
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def version(self) -> str:
        """What changes when the file does, as far as the store tells."""
        with _store_errors():
            store, path = self._store()
            return str(store.ukey(path))

    def download(self, target: Path) -> None:
        """Copy the file to a path on this machine, without holding it in memory."""
        with _store_errors():
            store, path = self._store()
            store.get_file(path, str(target))

    def unlink(self, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002  (as of Path)
        """Remove it."""
        with _store_errors():
            store, path = self._store()
            if not missing_ok or store.exists(path):
                store.rm_file(path)

    @contextmanager
    def complete(self) -> Iterator[BinaryIO]:
        """A stream whose content appears here, complete, when the block ends; not if it fails."""
        content = io.BytesIO()
        yield content
        with _store_errors():
            store, path = self._store()
            if ATOMIC.intersection(_protocols(store)):
                store.pipe_file(path, content.getvalue())
                return
            folder = posixpath.dirname(path)
            store.makedirs(folder, exist_ok=True)
            temporary = posixpath.join(folder, f".attnviz-{uuid.uuid4().hex}.tmp")
            try:
                store.pipe_file(temporary, content.getvalue())
                store.mv(temporary, path)
            except BaseException:
                if store.exists(temporary):
                    store.rm_file(temporary)
                raise

    def probe(self) -> None:
        """Write a few bytes to a file in this folder and remove it.

        Raises:
            OSError: That does not work.
        """
        file = self / f".attnviz-{uuid.uuid4().hex}.tmp"
        with file.complete() as stream:
            stream.write(b"attnviz")
        file.unlink()

    def below(self, pattern: str = "") -> list[str]:
        """All files below, or those that match a glob below; relative, in no order."""
        with _store_errors():
            store, path = self._store()
            if not pattern:
                files = store.find(path)
            else:
                files = []
                for match in store.glob(posixpath.join(path, pattern)):
                    files += store.find(match) if store.isdir(match) else [match]
            root = path.rstrip("/") + "/"
            return [name[len(root) :] for name in files if name.startswith(root)]


def _protocols(store: Any) -> tuple[str, ...]:
    names = store.protocol
    return (names,) if isinstance(names, str) else tuple(names)


@contextmanager
def _store_errors() -> Iterator[None]:
    """Whatever a store raises, as an ``OSError``: each has errors of its own libraries."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise OSError(0, reason) from error
