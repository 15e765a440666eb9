"""What this process may use and do: its cores, and whether it runs attnviz and nothing else."""

from __future__ import annotations

import gc
import math
import os
from contextlib import suppress
from pathlib import Path

_IMPORT_THRESHOLD = 1_000_000
"""New objects before a collection while modules are imported; torch and timm make half of that."""

_claimed = False
_threshold: tuple[int, int, int] | None = None


def claim_process() -> None:
    """Declare that this process runs attnviz and nothing else, before anything heavy is imported.

    Called by the command line and by the processes that it starts, never by ``import attnviz``: a
    program that uses attnviz keeps its own garbage collection, its own import of timm and its own
    end. Objects that modules are made of live as long as the process, so that looking for garbage
    among them is wasted; the collector waits until ``imports_done``.
    """
    global _claimed, _threshold  # noqa: PLW0603 - a fact about the process
    _claimed = True
    if _threshold is None:
        _threshold = gc.get_threshold()
        gc.set_threshold(_IMPORT_THRESHOLD, *_threshold[1:])


def process_is_ours() -> bool:
    """Whether this process was claimed."""
    return _claimed


def imports_done() -> None:
    """End what ``claim_process`` began: the collector works as usual, on what is made from now."""
    global _threshold  # noqa: PLW0603
    if _threshold is not None:
        gc.freeze()
        gc.set_threshold(*_threshold)
        _threshold = None


def available_cores(root: Path = Path("/")) -> int:
    """CPU cores that this process may use: those it is bound to, cut by its container's quota.

    root: where /proc and /sys are. A quota of one and a half cores counts as two.
    """
    # Since Python 3.13 the former also heeds -X cpu_count and PYTHON_CPU_COUNT.
    count = getattr(os, "process_cpu_count", _bound_cores)() or 1
    return max(1, math.ceil(min(count, _quota(root))))


def _bound_cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _quota(root: Path) -> float:
    """CPU time a second of wall time that the control groups of this process grant."""
    quota = math.inf
    with suppress(OSError, ValueError):
        groups = (root / "proc/self/cgroup").read_text(encoding="utf-8")
        for line in groups.splitlines():
            _, controllers, path = line.split(":", maxsplit=2)
            if not controllers:
                quota = min(quota, _lowest(root / "sys/fs/cgroup", path))
            elif "cpu" in controllers.split(","):
                for mount in ("cpu", "cpu,cpuacct"):
                    quota = min(quota, _lowest(root / "sys/fs/cgroup" / mount, path))
    return quota


def _lowest(mount: Path, path: str) -> float:
    """The lowest quota of a group and those above it; a container sees its own as the mount."""
    group = mount / path.lstrip("/")
    groups = [group, *group.parents]
    return min(map(_quota_of, groups[: groups.index(mount) + 1]))


def _quota_of(group: Path) -> float:
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with suppress(OSError, ValueError):
            text = " ".join((group / name).read_text(encoding="ascii") for name in names)
            quota, period = map(int, text.split())
            if quota > 0 and period > 0:
                return quota / period
    return math.inf
