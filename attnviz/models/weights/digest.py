"""The SHA-256 of weights files. No torch."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from attnviz.errors import CheckpointError
from attnviz.models.weights.locate import locate


class Digest:
    """SHA-256 of some files, one after the other, computed while the model is being built."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._value: str | None = None
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._compute, daemon=True)
        self._thread.start()

    def _compute(self) -> None:
        digest = hashlib.sha256()
        try:
            for path in self._files:
                with path.open("rb") as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
        except OSError as error:
            self._error = error
        self._value = digest.hexdigest()

    def value(self) -> str:
        """Hex, once all files are read."""
        self._thread.join()
        if self._error is not None:
            raise CheckpointError(f"{self._files[0]} cannot be read: {self._error}")
        return str(self._value)


def digest_of(path: Path) -> str:
    """The ``sha256`` that the checkpoint at a path would have; nothing in it is looked at.

    Raises:
        UsageError: No such path, or a folder without config.json or weights.
        CheckpointError: Not readable.
    """
    files, _ = locate(path)
    return Digest(files).value()
