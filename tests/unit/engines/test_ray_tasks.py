"""What travels between the processes of a cluster, without one."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest

from attnviz.domain.kinds import HeadsRequest
from attnviz.domain.requests import (
    ClusterRequest,
    InputRequest,
    ModelRequest,
    OutputRequest,
    RunRequest,
)
from attnviz.engines.ray import connect
from attnviz.engines.ray.connect import Pool, pool
from attnviz.engines.ray.tasks import Job, _guarded, packed, unpacked
from attnviz.errors import UsageError
from tests.helpers.planted import tiny_vit
from tests.helpers.versions import WITHOUT_SYMPY


def ray_with(*nodes):
    """As much of Ray as is asked: its nodes, the last of them gone."""
    alive = [{"Alive": True, "Resources": node} for node in nodes]
    return SimpleNamespace(nodes=lambda: [*alive, {"Alive": False, "Resources": {"CPU": 99}}])


@pytest.mark.parametrize(
    ("nodes", "cpus", "device", "expected"),
    [
        # nodes, models, threads of each, CPU cores and GPUs that each reserves
        (({"CPU": 2.0},), 0, "auto", Pool(1, 1, 2, 1, 0)),
        (({"CPU": 1.0},), 0, "cpu", Pool(1, 1, 1, 0.5, 0)),
        (({"CPU": 64.0},), 0, "auto", Pool(1, 16, 4, 3, 0)),
        (({"CPU": 64.0},), 16, "auto", Pool(1, 4, 16, 15, 0)),
        (({"CPU": 8.0}, {"CPU": 7.0}), 4, "auto", Pool(2, 3, 4, 3, 0)),
        (({"CPU": 8.0}, {"CPU": 2.0}, {"node": 1.0}), 0, "auto", Pool(3, 2, 4, 3, 0)),
        (({"CPU": 16.0, "GPU": 8.0}, {"CPU": 16.0}), 0, "auto", Pool(2, 8, 1, 1, 1)),
        (({"CPU": 16.0, "GPU": 8.0},), 0, "cpu", Pool(1, 4, 4, 3, 0)),
    ],
)
def test_models_are_placed_by_what_the_machines_have(nodes, cpus, device, expected):
    found = pool(ray_with(*nodes), ClusterRequest(cpus_per_model=cpus), device)
    assert found == expected
    assert found.device == ("cuda" if expected.gpus else "cpu")
    # Something is left over to read and to draw.
    assert found.models * found.cpus < sum(node.get("CPU", 0) for node in nodes)


@pytest.mark.parametrize(
    ("nodes", "cpus", "device", "reason"),
    [
        (({"CPU": 4.0},), 8, "auto", "--cpus-per-model 8: no machine .* the largest has 4"),
        (({"CPU": 4.0},), 0, "cuda", "--device cuda: the cluster has no GPU"),
        (({"CPU": 4.0, "GPU": 2.0},), 0, "cuda:1", "--device cuda:1: Ray gives every model"),
        (({"CPU": 4.0},), 0, "mps", "--device mps: Ray gives every model"),
    ],
)
def test_what_no_machine_has_is_told(nodes, cpus, device, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        pool(ray_with(*nodes), ClusterRequest(cpus_per_model=cpus), device)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("address", "error", "reason"),
    [
        (None, Exception("timed out\nafter 30 s"), r"no cluster can be started here .timed out\)"),
        (None, OSError(), r"no cluster can be started here .OSError\)"),
        ("10.0.0.1:6379", ConnectionError("no"), "--ray-address: no Ray cluster answers at 10.0.0"),
    ],
)
def test_a_cluster_that_does_not_start_is_told(monkeypatch, address, error, reason):
    def init(**_options):
        raise error

    silent = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setattr(connect, "_import", lambda: silent)
    with (
        connect.cluster(ClusterRequest(address=address)) as starting,
        pytest.raises(UsageError, match=reason) as caught,
    ):
        starting.ray()
    assert caught.value.hint


def test_a_cluster_of_this_machine_has_the_cores_of_this_process(monkeypatch):
    options = {}
    monkeypatch.setattr(connect, "available_cores", lambda: 3)
    fake = SimpleNamespace(is_initialized=lambda: False, init=options.update, shutdown=lambda: None)
    monkeypatch.setattr(connect, "_import", lambda: fake)
    with connect.cluster(ClusterRequest()) as starting:
        assert starting.ray() is fake
    assert options["num_cpus"] == 3
    options.clear()
    with connect.cluster(ClusterRequest(address="10.0.0.1:6379")) as starting:
        starting.ray()
    assert "num_cpus" not in options  # an existing cluster has what it has


MODEL_PROCESS = """
import pickle, sys
from types import SimpleNamespace
sys.modules["ray"] = SimpleNamespace(get=pickle.loads)
from attnviz.engines.ray.tasks import ModelWorker

job, model = pickle.load(sys.stdin.buffer)
assert "torch" not in sys.modules
worker = ModelWorker(job, [model], 1)
print(sorted({"sympy", "torch._dynamo", "torch._inductor"} & set(sys.modules)))
print(type(worker._stage.model.module).__name__, "timm" in sys.modules)
"""


@WITHOUT_SYMPY
def test_the_process_of_a_model_starts_without_the_compiler(tmp_path):
    """A process of its own, in which the model arrives as it does from Ray."""
    model = tiny_vit()
    inputs, output = InputRequest(("a.png",)), OutputRequest(tmp_path)
    request = RunRequest(HeadsRequest(), ModelRequest(), inputs, output)
    job = Job(request, model.info, "cpu", str(tmp_path))
    run = subprocess.run(
        [sys.executable, "-c", MODEL_PROCESS],
        input=pickle.dumps((job, pickle.dumps(model))),
        capture_output=True,
        check=False,
    )
    assert run.stdout.decode() == "[]\nVisionTransformer True\n", run.stderr.decode()


class TellsNothing(Exception):  # noqa: N818
    """An exception that does not survive pickling."""

    def __init__(self, one, two):
        super().__init__(one)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ZeroDivisionError("a bug"), ZeroDivisionError), (TellsNothing("a bug", 2), RuntimeError)],
)
def test_a_fault_arrives_with_its_traceback(error, kind):
    def stage():
        raise error

    arrived = unpacked(pickle.loads(pickle.dumps(packed(3, _guarded(stage))))).error
    assert type(arrived) is kind
    told = "".join([str(arrived), *getattr(arrived, "__notes__", [])])
    assert ", in stage" in told
    assert "a bug" in told
