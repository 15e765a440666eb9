"""A folder of any length runs in the memory of its first pictures, with as many open files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.photos import save_scene
from tests.helpers.warm import WarmServer

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")

FIRST = 20
MOST_MB = 6

# Every fourth input is no picture, and large: an error that is kept would keep its bytes.
WATCHED = """
import json, os, sys
from pathlib import Path
from attnviz.cli import report
from attnviz.cli.app import main
from attnviz.engines.draw_pool import Renderer

def resident(process):
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024

seen, pools = [], []
begin, take = Renderer.__init__, report.Report._take

def begin_and_note(self, *arguments, **options):
    begin(self, *arguments, **options)
    pools.append(self)

def take_and_note(self, event):
    take(self, event)
    pool = pools[-1]._pool if pools else None
    workers = getattr(pool, "_processes", None) or []
    seen.append((resident("self"), max(map(resident, workers), default=0.0),
                 len(os.listdir("/proc/self/fd"))))

Renderer.__init__, report.Report._take = begin_and_note, take_and_note
code = main(sys.argv[1:])
print(json.dumps({"code": code, "seen": seen}))
"""


def watched(server: WarmServer, *arguments: object) -> dict[str, list[list[float]]]:
    run = server.run(*arguments, source=WATCHED)
    assert run.returncode == 0, run.stderr
    found: dict[str, list[list[float]]] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize(
    "pictures", [40, pytest.param(120, marks=pytest.mark.slow(reason="draws 120 pictures"))]
)
def test_memory_and_open_files_are_flat_from_the_twentieth_picture_on(
    warm_server, tmp_path, workers, pictures
):
    for number in range(pictures):
        save_scene(tmp_path / "in" / f"{number}.png", 32, 40)
        if number % 4 == 0:
            (tmp_path / "in" / f"{number}-bad.jpg").write_bytes(bytes(1_000_000))
    found = watched(
        warm_server,
        "heads", tmp_path / "in", "--model", "demo", "--size", "32", "--dpi", "30", "--device",
        "cpu", "--workers", workers, "--table", tmp_path / "t.csv", "--summary", "--heads", "0",
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert found["code"] == 1
    seen = found["seen"]
    assert len(seen) >= pictures * 5 // 4
    own, workers_own, files = zip(*seen[FIRST:], strict=True)
    # The middle of ten, so that one collection late or early does not decide.
    for kind in (own, workers_own):
        growth = sorted(kind[-10:])[5] - sorted(kind[:10])[5]
        assert growth < MOST_MB, kind[:: len(kind) // 12]
    assert max(files[-10:]) <= max(files[:10]) + 4
