"""One part of a set of images, for machines that work on it without talking to each other."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_DIGEST_BYTES = 8


@dataclass(frozen=True)
class Shard:
    """Part ``index`` of ``count``, from 0: the shards of one count are disjoint and complete."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"Shard.index is {self.index}, expected 0 to {self.count - 1}")

    def holds(self, path: Path | str) -> bool:
        """Whether an input belongs here: by a hash of its path as written, the same everywhere."""
        name = os.fsencode(path).replace(b"\\", b"/")
        digest = hashlib.blake2b(name, digest_size=_DIGEST_BYTES).digest()
        return int.from_bytes(digest, "big") % self.count == self.index
