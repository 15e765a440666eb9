"""Pictures that kill whatever process works on them, while it reads or while it draws."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import PosixPath

from attnviz.output.plan import OutputPlan


def die() -> None:
    """What the kernel does to a process when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyPath(PosixPath):
    """A path whose file kills the process that opens it."""

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        die()
        return super().stat(follow_symlinks=follow_symlinks)


@dataclass(frozen=True)
class DeadlyPlan(OutputPlan):
    """A plan that kills the process that draws."""

    def page(self, suffix: str, number: int) -> PosixPath:
        die()
        return PosixPath()
