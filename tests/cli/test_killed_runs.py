"""Runs that are killed at any moment: what stands is whole, and the next run makes the rest.

Twenty real runs die by SIGKILL. They are forked from one process that has imported everything and
computed nothing, so that a run begins in hundredths of a second.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.output.read_record import read_record
from tests.helpers.command_line import files_below
from tests.helpers.photos import save_scene
from tests.helpers.processes import alive, children_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

KILLS = 20
PICTURES = 6
FORMATS = ("pdf", "png", "svg")
EACH = len(FORMATS) + 2
"""Files of a picture: its formats, an overlay and the data."""

STARTER = """
import os, sys
from attnviz.cli.app import main
import attnviz.engines.local, attnviz.runs.command, attnviz.runs.collect, attnviz.models.load
import attnviz.figures.heads, timm
import matplotlib.backends.backend_agg, matplotlib.backends.backend_pdf
import matplotlib.backends.backend_svg
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(main(line.rstrip("\\n").split("\\t")))
    print(child, flush=True)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Starter:
    """Starts runs of the command line, and kills them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", STARTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self, *arguments: object, kill_when: Callable[[], bool] | None = None) -> int:
        """The exit code; minus the signal where it died of one."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, arguments)) + "\n")
        self._process.stdin.flush()
        child = int(self._read())
        while kill_when is not None and not select.select([self._process.stdout], [], [], 0)[0]:
            if kill_when():
                os.kill(child, signal.SIGKILL)
                break
            time.sleep(0.0002)
        return int(self._read())

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    made = Starter()
    yield made
    made.end()


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., list[object]]:
    for number in range(PICTURES):
        save_scene(tmp_path / "in" / f"{number}.png", 40, 40)

    def make(out: str, *more: object) -> list[object]:
        formats = [part for name in FORMATS for part in ("-f", name)]
        return [
            "heads", tmp_path / "in", "--model", "demo", "--size", "32", "--dpi", "40", "--device",
            "cpu", "--save-data", "--quiet", "--overlay", "--heads", "0", *formats, "--out",
            tmp_path / out, *more,
        ]  # fmt: skip

    return make


def check_whole(path: Path) -> None:
    """The file can be read to its end by something other than what wrote it."""
    if path.suffix == ".png":
        with Image.open(path) as image:
            assert np.asarray(image).std() > 0
    elif path.suffix == ".svg":
        ET.fromstring(path.read_bytes())
    elif path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            assert all(arrays[name].size for name in arrays.files)
    else:
        assert path.read_bytes().rstrip().endswith(b"%%EOF")
    assert read_record(path) is not None


class Moment:
    """True once, after a run has brought about so many new names in a folder: while it writes a
    file, or a while later.
    """

    def __init__(self, folder: Path, names: int, delay: float | None) -> None:
        self._folder, self._names, self._delay = folder, names, delay
        self._old = self._names_there()
        self._new: set[str] = set()
        self._due = float("inf")

    def _names_there(self) -> set[str]:
        return {path.name for path in self._folder.iterdir()}

    def __call__(self) -> bool:
        new = self._names_there() - self._old
        self._new |= new
        if len(self._new) < self._names:
            return False
        if self._delay is None:
            return any(name.startswith(".attnviz-") for name in new)
        self._due = min(self._due, time.monotonic() + self._delay)
        return time.monotonic() >= self._due


def test_twenty_kills_at_any_moment_lose_and_spoil_nothing(
    starter: Starter, command: Callable[..., list[object]], tmp_path: Path
) -> None:
    begun = time.monotonic()
    assert starter.run(*command("whole", "--workers", "0", "--table", tmp_path / "whole.csv")) == 0
    a_file = (time.monotonic() - begun) / (PICTURES * EACH)
    whole = tmp_path / "whole"
    expected = {name: (whole / name).read_bytes() for name in files_below(whole)}
    assert len(expected) == PICTURES * EACH
    chance = random.Random(20)
    out, table = tmp_path / "out", tmp_path / "table.csv"
    out.mkdir()
    resumed = command("out", "--workers", "0", "--table", table, "--skip-existing")
    deaths = half_written = 0
    while deaths < KILLS:
        # Every new name counts, also the hidden one of a file that is being written.
        moment = Moment(out, chance.randint(0, 8), chance.choice([None, chance.uniform(0, a_file)]))
        code = starter.run(*resumed, kill_when=moment)
        assert code in (0, -signal.SIGKILL)
        deaths += code != 0
        assert code == 0 or not table.exists()
        table.unlink(missing_ok=True)
        found = files_below(out)
        standing = [name for name in found if not name.startswith(".attnviz-")]
        half_written += len(standing) < len(found)
        for name in standing:
            check_whole(out / name)
            assert (out / name).read_bytes() == expected[name]
        if len(standing) > len(expected) - EACH:
            # Else the last runs would find nothing left to do, and nothing to be killed at.
            for name in chance.sample(standing, len(standing) // 2):
                (out / name).unlink()
    assert half_written, "no run died while it wrote"
    assert starter.run(*resumed) == 0
    assert files_below(out) == sorted(expected)
    assert {name: (out / name).read_bytes() for name in expected} == expected
    assert table.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert not list(tmp_path.rglob(".attnviz-*"))


def test_a_killed_run_takes_its_drawing_processes_along(
    command: Callable[..., list[object]], tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "attnviz", *map(str, command("out", "--workers", "2"))],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    children = children_of(process.pid)
    assert len(children) >= 2
    process.kill()
    process.communicate(timeout=30)
    until = time.monotonic() + 20
    while any(map(alive, children)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, children))
    for name in files_below(tmp_path / "out"):
        if not Path(name).name.startswith(".attnviz-"):
            check_whole(tmp_path / "out" / name)
