"""What a process may use of its machine, and the garbage collector of one that is ours."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from attnviz.domain import process
from attnviz.domain.process import available_cores

CORES = 16


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A function that writes files of /proc and /sys, on a machine of 16 cores."""
    monkeypatch.setattr(process.os, "process_cpu_count", lambda: CORES, raising=False)

    def write(**files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return available_cores(tmp_path)

    return write


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, CORES),
        # Version 2, as a container sees itself, and as its host sees it.
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "10000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, CORES),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "9900000 100000\n"}, CORES),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "300000 100000\n"}, 3),
        # A group above it may grant less.
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "800000 100000\n",
                "sys/fs/cgroup/a/cpu.max": "400000 100000\n",
            },
            4,
        ),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/b/cpu.max": "100000 100000\n"}, CORES),
        # Version 1: a quota of -1 is none; in a container the group's own path is not mounted.
        (
            {
                "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/docker/f00\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "500000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            5,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/job\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "60000\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "10000\n",
            },
            6,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            CORES,
        ),
        ({"proc/self/cgroup": "no such thing\n"}, CORES),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": ""}, CORES),
    ],
)
def test_the_quota_of_a_container_decides(machine, files, cores):
    assert machine(**files) == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity")
def test_the_cores_that_a_process_is_bound_to_decide():
    bound = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(bound)})
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, bound)
    assert available_cores() <= len(bound)


def test_torch_keeps_to_the_quota_where_the_process_is_ours(monkeypatch):
    import torch

    from attnviz.models import backbone

    threads = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: CORES)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(backbone, "available_cores", lambda: 3)
    assert backbone.cores() == 3
    backbone.keep_to_available_cores()
    assert threads == []
    monkeypatch.setattr(backbone, "process_is_ours", lambda: True)
    backbone.keep_to_available_cores()
    assert threads == [3]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)  # what OMP_NUM_THREADS asks for
    backbone.keep_to_available_cores()
    assert threads == [3]


COLLECTION = """
import gc
before = gc.get_threshold()
from attnviz.domain import process
{claim}
import PIL.Image, typer, numpy
print(gc.get_threshold() == before, gc.get_freeze_count() > 0, process.process_is_ours())
process.imports_done()
print(gc.get_threshold() == before, gc.get_freeze_count() > 0, gc.isenabled())
"""


def test_collection_waits_for_imports_only_where_the_process_is_ours():
    for claim, lines in (
        ("process.claim_process()", "False False True\nTrue True True\n"),
        ("", "True False False\nTrue False True\n"),
    ):
        run = subprocess.run(
            [sys.executable, "-c", COLLECTION.format(claim=claim)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert run.stdout == lines
    assert gc.isenabled()


PROGRAM = """
import atexit, gc, sys
import attnviz
threshold = gc.get_threshold()
model = attnviz.load_model("demo")
print(gc.isenabled(), gc.get_threshold() == threshold, gc.get_freeze_count())
print("torch._dynamo" in sys.modules or "torchvision" not in sys.modules)

class Last:
    def __del__(self):
        sys.__stdout__.write("taken apart\\n")

kept = [Last()]
kept.append(kept)
atexit.register(print, "asked for the end")
"""


def test_a_program_of_somebody_else_keeps_its_imports_its_collection_and_its_end():
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.stdout.splitlines() == [
        "True True 0", "True", "asked for the end", "taken apart",
    ], run.stderr  # fmt: skip
