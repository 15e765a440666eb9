"""Runs on a real Ray cluster: the same files as on one machine, whatever dies on the way."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from attnviz.domain import DrawStyle, ImageFile
from attnviz.domain.events import Done, Failed, Skipped, Started
from attnviz.domain.kinds import HeadsRequest
from attnviz.domain.requests import (
    ClusterRequest,
    InputRequest,
    ModelRequest,
    OutputRequest,
    RunRequest,
)
from attnviz.runs import command as pipeline
from attnviz.stages.plan import plan_request
from tests.helpers.command_line import files_below
from tests.helpers.deadly import DeadlyPath, DeadlyPlan, ModelKillingPath
from tests.ray.conftest import COUNT

CONSOLE_SCRIPT = Path(sys.executable).parent / "attnviz"
ON_RAY = ClusterRequest(cpus_per_model=2)


@pytest.fixture
def request_for(weights, pictures, tmp_path):
    def build(folder="out", inputs=None, **more):
        output = {key: more.pop(key) for key in ("skip_existing", "table") if key in more}
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


def failures(events):
    return {event.name: str(event.error) for event in events if isinstance(event, Failed)}


def done(events):
    """What is told of each finished picture, but for the folder of its files."""
    told = {}
    for event in events:
        if isinstance(event, Done):
            record = {key: value for key, value in event.record.items() if key != "files"}
            files = [(file.path.name, file.kind) for file in event.written]
            told[event.file] = (record, files, event.table, event.notes)
    return told


def contents(folder):
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


def test_everything_is_as_on_one_machine(cluster, request_for, tmp_path):
    here = list(pipeline.run(request_for("here", cluster=None, workers=0)))
    there = list(pipeline.run(request_for("there")))
    assert len(contents(tmp_path / "here")) == 2 * COUNT
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
    assert isinstance(there[0], Started)
    assert there[0] == here[0]
    assert failures(here) == failures(there)
    assert names(there, Failed) == ["broken.png"]
    assert done(here) == done(there)
    assert list(done(here)) == list(done(there))
    assert len(done(there)) == COUNT


def test_a_second_run_does_only_what_is_missing(cluster, request_for, tmp_path):
    first = list(pipeline.run(request_for(cluster=None, workers=0)))
    before = contents(tmp_path / "out")
    for name in ("1.heads.png", "deep/er/3.heads.npz"):
        (tmp_path / "out" / name).unlink()
    events = list(pipeline.run(request_for(skip_existing=True, table=tmp_path / "table.csv")))
    assert names(events, Done) == ["1.png", "3.png"]
    assert len(names(events, Skipped)) == COUNT - 2
    assert names(events, Failed) == ["broken.png"]
    assert contents(tmp_path / "out") == before
    # What stands has its numbers in the table all the same.
    assert {e.file: e.table for e in events if isinstance(e, Done | Skipped)} == {
        e.file: e.table for e in first if isinstance(e, Done)
    }


def test_the_first_failure_ends_a_run_that_was_asked_to(cluster, request_for):
    events = list(pipeline.run(request_for(fail_fast=True)))
    assert isinstance(events[-1], Failed)
    assert names(events, Failed) == ["broken.png"]


def test_a_picture_that_kills_its_process_costs_only_itself(
    cluster, request_for, whole, tmp_path, monkeypatch
):
    """One kills whatever reads it, the other whatever draws it."""

    def with_deadly(request, into):
        found, plans = plan_request(request, into)
        deadly = {}
        for file, plan in plans.items():
            if file.path.name == "2.png":
                deadly[ImageFile(DeadlyPath(file.path), file.relative)] = plan
            elif file.path.name == "4.png":
                deadly[file] = DeadlyPlan(plan.folder, plan.stem, plan.command)
            else:
                deadly[file] = plan
        return dataclasses.replace(found, files=tuple(deadly)), deadly

    monkeypatch.setattr(pipeline, "plan_request", with_deadly)
    events = list(pipeline.run(request_for(inputs=whole)))
    assert names(events, Failed) == ["2.png", "4.png"]
    good = [n for n in range(COUNT - 1) if n not in (2, 4)]
    assert names(events, Done) == [f"{n}.png" for n in good]
    for event in events:
        if isinstance(event, Failed):
            assert "the process that worked on it died" in event.error.message
            assert event.error.hint
    drawn = [name for name in contents(tmp_path / "out") if name.endswith(".png")]
    assert drawn == [f"{n}.heads.png" for n in good]


def test_a_model_that_is_killed_is_started_again(
    cluster, request_for, whole, tmp_path, monkeypatch
):
    list(pipeline.run(request_for("here", inputs=whole, cluster=None, workers=0)))

    def with_killer(request, into):
        found, plans = plan_request(request, into)
        *files, last = plans
        killer = ImageFile(ModelKillingPath(last.path), last.relative)
        replaced = {file: plans[file] for file in files} | {killer: plans[last]}
        return dataclasses.replace(found, files=tuple(replaced)), replaced

    monkeypatch.setattr(pipeline, "plan_request", with_killer)
    events = list(pipeline.run(request_for("there", inputs=whole)))
    assert int((tmp_path / "killed").read_text()) >= 1
    assert names(events, Done) == [f"{n}.png" for n in range(COUNT - 1)]
    assert names(events, Failed) == []
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
