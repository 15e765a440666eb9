"""Runs on a real Ray cluster: the same files as on one machine, whatever dies on the way."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from attnviz import pipeline
from attnviz.domain import DrawStyle, ImageFile
from attnviz.events import Done, Failed, Skipped, Started
from attnviz.outlook import plan_request
from attnviz.requests import (
    ClusterRequest,
    HeadsRequest,
    InputRequest,
    ModelRequest,
    OutputRequest,
    RunRequest,
)
from tests.cluster.conftest import COUNT
from tests.helpers.command_line import files_below
from tests.helpers.deadly import DeadlyPath, DeadlyPlan

CONSOLE_SCRIPT = Path(sys.executable).parent / "attnviz"
MODEL_PROCESS = b"ray::MapWorker(MapBatches(ModelWorker))"
ON_RAY = ClusterRequest(cpus_per_model=2)


@pytest.fixture
def request_for(weights, pictures, tmp_path):
    def build(folder="out", inputs=None, **more):
        output = {key: more.pop(key) for key in ("skip_existing",) if key in more}
        return RunRequest(
            command=HeadsRequest(),
            model=ModelRequest(checkpoint=weights, args={"heads": 2}),
            inputs=InputRequest(inputs=(str(inputs or pictures),)),
            output=OutputRequest(folder=tmp_path / folder, save_data=True, **output),
            style=DrawStyle(dpi=30),
            **({"cluster": ON_RAY} | more),
        )

    return build


@pytest.fixture
def whole(pictures, tmp_path):
    """A folder of the pictures that can be drawn."""
    folder = tmp_path / "whole"
    folder.mkdir()
    for file in pictures.glob("?.png"):
        (folder / file.name).symlink_to(file)
    return folder


def names(events, kind):
    """The pictures of the events of a kind, sorted: each as often as it was told of."""
    return sorted(
        Path(event.name if kind is Failed else event.file.path).name
        for event in events
        if isinstance(event, kind)
    )


def contents(folder):
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


def test_everything_is_as_on_one_machine(cluster, request_for, tmp_path):
    here = list(pipeline.run(request_for("here", cluster=None, workers=0)))
    there = list(pipeline.run(request_for("there")))
    assert len(contents(tmp_path / "here")) == 2 * COUNT
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
    assert isinstance(there[0], Started)
    assert dataclasses.replace(there[0]) == here[0]
    assert [str(e.error) for e in here if isinstance(e, Failed)] == [
        str(e.error) for e in there if isinstance(e, Failed)
    ]
    done = [
        {
            event.file: (
                {key: value for key, value in event.record.items() if key != "files"},
                event.table,
                event.notes,
                [(file.path.name, file.kind) for file in event.written],
            )
            for event in events
            if isinstance(event, Done)
        }
        for events in (here, there)
    ]
    assert done[0] == done[1]
    assert len(done[0]) == COUNT


def test_a_second_run_does_only_what_is_missing(cluster, request_for, tmp_path):
    again = request_for(skip_existing=True)
    list(pipeline.run(again))
    before = contents(tmp_path / "out")
    for name in ("1.heads.png", "deep/er/3.heads.npz"):
        (tmp_path / "out" / name).unlink()
    events = list(pipeline.run(again))
    assert names(events, Done) == ["1.png", "3.png"]
    assert len(names(events, Skipped)) == COUNT - 2
    assert names(events, Failed) == ["broken.png"]
    assert contents(tmp_path / "out") == before


def test_the_first_failure_ends_a_run_that_was_asked_to(cluster, request_for):
    events = list(pipeline.run(request_for(fail_fast=True)))
    assert isinstance(events[-1], Failed)
    assert names(events, Failed) == ["broken.png"]
    # The cluster is free again for the next run.
    assert len(names(pipeline.run(request_for("next")), Done)) == COUNT


@pytest.mark.parametrize("whom", ["model", "picture"])
def test_a_picture_that_kills_its_process_costs_only_itself(
    cluster, request_for, whole, tmp_path, monkeypatch, whom
):
    request = request_for(inputs=whole)

    def with_deadly(request, into):
        found, plans = plan_request(request, into)
        deadly = {
            ImageFile(DeadlyPath(file.path), file.relative)
            if whom == "picture" and file.path.name == "4.png"
            else file: DeadlyPlan(plan.folder, plan.stem, plan.command)
            if whom == "model" and file.path.name == "4.png"
            else plan
            for file, plan in plans.items()
        }
        return dataclasses.replace(found, files=tuple(deadly)), deadly

    monkeypatch.setattr(pipeline, "plan_request", with_deadly)
    events = list(pipeline.run(request))
    assert names(events, Failed) == ["4.png"]
    assert names(events, Done) == [f"{n}.png" for n in range(COUNT - 1) if n != 4]
    (failed,) = (event for event in events if isinstance(event, Failed))
    assert "the process that worked on it died" in failed.error.message
    assert failed.error.hint
    assert len(contents(tmp_path / "out")) == 2 * (COUNT - 2) + (whom == "model")


def test_a_model_that_is_killed_is_started_again(cluster, request_for, whole, tmp_path):
    list(pipeline.run(request_for("here", inputs=whole, cluster=None, workers=0)))
    events = pipeline.run(request_for("there", inputs=whole))
    seen, killed = [], 0
    for event in events:
        seen.append(event)
        if not killed and isinstance(event, Done):
            for process in model_processes():
                os.kill(process, signal.SIGKILL)
                killed += 1
    assert killed >= 1
    assert names(seen, Done) == [f"{n}.png" for n in range(COUNT - 1)]
    assert names(seen, Failed) == []
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_a_machine_that_leaves_in_the_middle_loses_nothing(cluster, request_for, whole, tmp_path):
    third = cluster.add_node(num_cpus=2, object_store_memory=100 << 20)
    cluster.wait_for_nodes()
    list(pipeline.run(request_for("here", inputs=whole, cluster=None, workers=0)))
    seen, removed = [], False
    for event in pipeline.run(request_for("there", inputs=whole)):
        seen.append(event)
        if not removed and isinstance(event, Done):
            cluster.remove_node(third, allow_graceful=False)
            removed = True
    assert removed
    assert names(seen, Done) == [f"{n}.png" for n in range(COUNT - 1)]
    assert names(seen, Failed) == []
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_the_command_line_on_a_cluster_says_nothing_of_its_own(cluster, weights, whole, tmp_path):
    run = subprocess.run(
        [
            CONSOLE_SCRIPT, "heads", whole, "--checkpoint", weights, "--model-arg", "heads=2",
            "--dpi", "30", "--engine", "ray", "--ray-address", cluster.address,
            "--cpus-per-model", "2", "--out", tmp_path / "out", "--quiet",
        ],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert sorted(Path(line).name for line in run.stdout.splitlines()) == [
        f"{n}.heads.png" for n in range(COUNT - 1)
    ]


def model_processes():
    """The processes in which a model is loaded and waits for pictures."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(MODEL_PROCESS):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
