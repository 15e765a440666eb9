"""The processes of this machine, from /proc."""

from __future__ import annotations

from pathlib import Path


def children_of(process: int) -> list[int]:
    """All running descendants of a process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    family = [process]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family[1:]


def alive(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
