"""Runs that are killed at any moment: what stands is whole, and the next run makes the rest."""

from __future__ import annotations

import random
import signal
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attnviz.output.read_record import read_record
from tests.helpers.command_line import files_below
from tests.helpers.photos import save_scene
from tests.helpers.processes import alive, children_of
from tests.helpers.warm import WarmServer

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

MOST_KILLS = 20
FORMATS = ("pdf", "png", "svg")
EACH = len(FORMATS) + 2
"""Files of an image: its formats, an overlay and the data."""


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., list[object]]:
    def make(out: str, *more: object) -> list[object]:
        formats = [part for name in FORMATS for part in ("-f", name)]
        return [
            "heads", tmp_path / "in", "--model", "demo", "--size", "32", "--dpi", "40", "--device",
            "cpu", "--save-data", "--quiet", "--overlay", "--heads", "0", *formats, "--out",
            tmp_path / out, *more,
        ]  # fmt: skip

    return make


def save_images(folder: Path, count: int) -> None:
    for number in range(count):
        save_scene(folder / f"{number}.png", 40, 40)


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


def run_and_kill(server: WarmServer, command: list[object], when: Callable[[], bool]) -> int:
    """Kill a run as soon as it is ``when``: the exit code, minus the signal where it died of it."""
    process = server.start(*command)
    while process.poll() is None:
        if when():
            process.kill()
            break
        time.sleep(0.0002)
    process.communicate()
    return process.wait()


@pytest.mark.parametrize(
    ("kills", "images"),
    [
        (3, 3),
        pytest.param(MOST_KILLS, 6, marks=pytest.mark.slow(reason="kills twenty runs, not three")),
    ],
)
def test_kills_at_any_moment_lose_and_spoil_nothing(
    kills: int,
    images: int,
    warm_server: WarmServer,
    command: Callable[..., list[object]],
    tmp_path: Path,
) -> None:
    save_images(tmp_path / "in", images)
    begun = time.monotonic()
    first = command("whole", "--workers", "0", "--table", tmp_path / "whole.csv")
    assert warm_server.run(*first).returncode == 0
    a_file = (time.monotonic() - begun) / (images * EACH)
    whole = tmp_path / "whole"
    expected = {name: (whole / name).read_bytes() for name in files_below(whole)}
    assert len(expected) == images * EACH
    chance = random.Random(20)
    out, table = tmp_path / "out", tmp_path / "table.csv"
    out.mkdir()
    resumed = command("out", "--workers", "0", "--table", table, "--skip-existing")
    deaths = half_written = 0
    # A few kills may all miss a file that is being written: a few more then, but not without end.
    while deaths < kills or (not half_written and deaths < MOST_KILLS):
        # Every new name counts, also the hidden one of a file that is being written.
        moment = Moment(out, chance.randint(0, 8), chance.choice([None, chance.uniform(0, a_file)]))
        code = run_and_kill(warm_server, resumed, moment)
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
    assert warm_server.run(*resumed).returncode == 0
    assert files_below(out) == sorted(expected)
    assert {name: (out / name).read_bytes() for name in expected} == expected
    assert table.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert not list(tmp_path.rglob(".attnviz-*"))


def test_a_killed_run_takes_its_drawing_processes_along(
    warm_server: WarmServer, command: Callable[..., list[object]], tmp_path: Path
) -> None:
    save_images(tmp_path / "in", 6)
    process = warm_server.start(*command("out", "--workers", "2"))
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
