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
    """Die as a process does when the kernel runs out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyPath(PosixPath):
    """A path whose file kills the process that opens it."""

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        die()
        return super().stat(follow_symlinks=follow_symlinks)


MODEL_PROCESS = b"ray::MapWorker(MapBatches(ModelWorker))"
PATIENCE_SECONDS = 60.0


class ModelKillingPath(PosixPath):
    """A path whose file, the first time that it is opened, kills every process that holds a model.

    By then other images have been drawn (into the folder ``there`` beside the images' own), and
    this one has not reached a model, so the run cannot go on without a new one.
    """

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        folder = Path(os.fspath(self)).parent.parent  # of a class whose files are harmless
        killed, drawn = folder / "killed", folder / "there"
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
    processes = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(MODEL_PROCESS):
                processes.append(int(entry.name))
        except OSError:
            continue
    return processes


@dataclass(frozen=True)
class DeadlyPlan(OutputPlan):
    """A plan that kills the process that draws."""

    def page(self, suffix: str, number: int) -> PosixPath:
        die()
        return PosixPath()


def write_forever(folder: Path) -> None:
    """Begin a file and never finish it."""
    with complete_file(folder / "never.png") as stream:
        stream.write(b"half")
        stream.flush()
        time.sleep(60)
