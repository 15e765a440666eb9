"""Images that kill a process that reads or draws them or holds a model, and one never written.

Processes import what they are sent by its name: this file imports nothing heavy.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path, PosixPath

from attnviz.output.atomic import complete_file
from attnviz.output.plan import OutputPlan


def die() -> None:
    """What the kernel does to a process when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyPath(PosixPath):
    """A path whose file kills the process that opens it."""

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        die()
        return super().stat(follow_symlinks=follow_symlinks)


MODEL_PROCESS = b"ray::MapWorker(MapBatches(ModelWorker))"
PATIENCE_SECONDS = 60.0


class ModelKillingPath(PosixPath):
    """A path whose file, the first time that it is opened, kills every process of a model.

    By then other pictures have been drawn (in the folder ``there`` beside the pictures' own), and
    this one has not reached a model, so the run cannot go on without a new one.
    """

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        place = Path(os.fspath(self)).parent.parent  # of a class whose files are harmless
        killed, drawn = place / "killed", place / "there"
        if not killed.exists():
            end = time.monotonic() + PATIENCE_SECONDS
            while time.monotonic() < end and not (any(drawn.glob("*.png")) and model_processes()):
                time.sleep(0.05)
            processes = model_processes()
            for process in processes:
                os.kill(process, signal.SIGKILL)
            killed.write_text(str(len(processes)))
        return super().stat(follow_symlinks=follow_symlinks)


def model_processes() -> list[int]:
    """The processes of this machine in which Ray has a model loaded."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(MODEL_PROCESS):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@dataclass(frozen=True)
class DeadlyPlan(OutputPlan):
    """A plan that kills the process that draws."""

    def page(self, suffix: str, number: int) -> PosixPath:
        die()
        return PosixPath()


def write_forever(folder: Path) -> None:
    """Begin a file, and be long about the rest of it."""
    with complete_file(folder / "never.png") as stream:
        stream.write(b"half")
        stream.flush()
        time.sleep(60)
