"""The caches of this machine's CPU, as the system reports them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SYSFS = Path("/sys/devices/system/cpu/cpu0/cache")

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Caches:
    """Bytes of the second and third level that one core reaches; 0 where unknown or missing."""

    level2: int
    level3: int

    @property
    def last(self) -> int:
        """Bytes of the largest cache; 0 where none is known."""
        return max(self.level2, self.level3)

    def __str__(self) -> str:
        if not self.last:
            return "caches unknown"
        return f"L2 {self.level2 / (1 << 20):g} MB, L3 {self.level3 / (1 << 20):g} MB"


@lru_cache(maxsize=1)
def cpu_caches() -> Caches:
    """The caches of the first core, from Linux's sysfs, else from the C library."""
    sizes = _from_sysfs(SYSFS)
    return Caches(
        sizes.get(2) or _from_sysconf("SC_LEVEL2_CACHE_SIZE"),
        sizes.get(3) or _from_sysconf("SC_LEVEL3_CACHE_SIZE"),
    )


def _from_sysfs(folder: Path) -> dict[int, int]:
    """Bytes of each level's data or unified cache."""
    sizes: dict[int, int] = {}
    for entry in sorted(folder.glob("index*")):
        try:
            kind = (entry / "type").read_text(encoding="ascii").strip()
            level = int((entry / "level").read_text(encoding="ascii"))
            size = (entry / "size").read_text(encoding="ascii").strip()
            if kind != "Instruction":
                sizes[level] = int(size.rstrip("KMG")) * UNITS.get(size[-1:], 1)
        except (OSError, ValueError):
            continue
    return sizes


def _from_sysconf(name: str) -> int:
    try:
        return max(0, os.sysconf(name))
    except (AttributeError, OSError, ValueError):  # not on Windows; a name that is not known
        return 0
