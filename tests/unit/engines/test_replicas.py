"""Pictures that go through models side by side: the same numbers, in order, and an end at once."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from attnviz.domain import RolloutOptions
from attnviz.domain.events import Failed
from attnviz.domain.kinds import (
    HeadsRequest,
    LayersRequest,
    PatchRequest,
    RelevanceRequest,
    RolloutRequest,
    ScoreRequest,
)
from attnviz.domain.requests import InputRequest, ModelRequest, OutputRequest, RunRequest
from attnviz.engines import local as local_run
from attnviz.engines import replicas as module
from attnviz.engines.replicas import Replicas, replicated
from attnviz.models.load import load_backbone
from attnviz.runs import command as pipeline
from attnviz.stages.model import ModelStage
from attnviz.stages.plan import plan_request
from attnviz.stages.read import ReadStage
from tests.helpers.photos import save_scene
from tests.helpers.planted import tiny_vit

SIDES = ((160, 160), (160, 224), (224, 160), (160, 160), (160, 224))


@pytest.fixture(autouse=True)
def two_cores():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def small():
    """A model wide enough for torch to split its work over cores; three layers will do."""
    request = ModelRequest(name="dino_vits16", random_weights=True, args={"depth": 3}, device="cpu")
    return load_backbone(request)


@pytest.fixture
def read(tmp_path):
    """Pictures of a request, read and fitted for a model."""

    def make(model, command, sides=SIDES):
        for number, (height, width) in enumerate(sides):
            save_scene(tmp_path / "in" / f"{number}.png", height, width)
        request = RunRequest(
            command=command,
            model=ModelRequest(),
            inputs=InputRequest((str(tmp_path / "in"),), size="original"),
            output=OutputRequest(tmp_path / "out"),
        )
        _, plans = plan_request(request, None)
        stage = ModelStage(request, model)
        reading = ReadStage(request, model.info, "cpu")
        return stage, [reading.read(file, plan) for file, plan in plans.items()]

    return make


def assert_equal(one, other):
    """Up to rounding: on one core a product of small matrices may add up in another order."""
    assert type(one) is type(other)
    for field in dataclasses.fields(one):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(ours, np.ndarray) and ours.dtype == np.float32:
            size = np.abs(theirs).max()
            np.testing.assert_allclose(ours / size, theirs / size, atol=1e-5, err_msg=field.name)
        elif isinstance(ours, np.ndarray):
            np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
        elif isinstance(ours, float):
            assert ours == pytest.approx(theirs, rel=1e-5), field.name
        else:
            assert ours == theirs, field.name


@pytest.mark.parametrize(
    "command",
    [
        HeadsRequest(),
        LayersRequest(),
        RolloutRequest(options=RolloutOptions(discard_ratio=0)),
        PatchRequest(),
        ScoreRequest(),
        RelevanceRequest(like=Path("second.png")),
    ],
    ids=lambda command: type(command).__name__,
)
def test_numbers_and_order_are_those_of_one_after_the_other(small, read, command, tmp_path):
    if isinstance(command, RelevanceRequest):
        # Another picture than those: the likeness to itself has no gradient.
        save_scene(tmp_path / "second.png", 96, 256)
        command = dataclasses.replace(command, like=tmp_path / "second.png")
    stage, pictures = read(small, command)
    alone = [outcome for ready in pictures for outcome in stage.outcomes([ready])]
    beside = list(Replicas(stage, 2).outcomes(iter(pictures)))
    assert len(beside) == len(SIDES)
    for one, other in zip(alone, beside, strict=True):
        assert one.job is other.job
        assert_equal(one.maps, other.maps)


def test_models_run_at_the_same_time_and_share_their_weights(read, monkeypatch):
    stage, pictures = read(tiny_vit(), HeadsRequest(), ((40, 40),) * 4)
    both = threading.Barrier(2, timeout=30)
    models = []
    compute = ModelStage._compute

    def meeting(self, batch):
        both.wait()
        models.append(self.model)
        return compute(self, batch)

    monkeypatch.setattr(ModelStage, "_compute", meeting)
    assert len(list(Replicas(stage, 2).outcomes(iter(pictures)))) == 4
    assert len({id(model) for model in models}) == 2
    weights = {tuple(p.data_ptr() for p in model.module.parameters()) for model in models}
    assert weights == {tuple(p.data_ptr() for p in stage.model.module.parameters())}
    assert not any(block._forward_pre_hooks for block in stage.model.blocks)


def test_what_is_no_picture_passes_by_in_its_place(read):
    stage, pictures = read(tiny_vit(), HeadsRequest(), ((40, 40),) * 3)
    failed = Failed("broken.png", ValueError("broken"))
    outcomes = list(Replicas(stage, 2).outcomes(iter([pictures[0], failed, *pictures[1:]])))
    assert outcomes[1] is failed
    assert [o.job for o in outcomes if o is not failed] == pictures


@pytest.mark.parametrize("why", ["long", "memory"])
def test_a_picture_that_may_not_go_beside_others_goes_alone(small, read, monkeypatch, why):
    stage, pictures = read(small, HeadsRequest(), SIDES[:3])
    if why == "long":
        monkeypatch.setattr(module, "BLOCK_MULTIPLICATIONS_MOST", 0)
    else:
        monkeypatch.setattr(module, "fits_beside", lambda *_: False)
    seen = []
    compute = ModelStage._compute

    def watched(self, batch):
        seen.append((self, torch.get_num_threads(), threading.current_thread()))
        return compute(self, batch)

    monkeypatch.setattr(ModelStage, "_compute", watched)
    assert len(list(Replicas(stage, 2).outcomes(iter(pictures)))) == 3
    assert seen == [(stage, 2, threading.main_thread())] * 3


def test_nothing_runs_on_when_nobody_waits_any_more(read, monkeypatch):
    """Each block takes 0.4 s; without the check an abandoned pass would go on for 1.2 s."""
    stage, pictures = read(tiny_vit(), HeadsRequest(), ((40, 40),) * 6)
    models = Replicas(stage, 2)
    entered = []

    def slowly(_module, _inputs):
        entered.append(threading.current_thread())
        time.sleep(0.4)

    stages = [models._idle.get() for _ in range(2)]
    for replica in stages:
        for block in replica.model.blocks:
            block.register_forward_pre_hook(slowly)
        models._idle.put(replica)
    outcomes = models.outcomes(iter(pictures))
    next(outcomes)
    outcomes.close()
    time.sleep(0.6)
    count = len(entered)
    time.sleep(0.6)
    assert len(entered) == count
    assert count < 6 * len(stage.model.blocks)


def test_an_error_of_the_program_is_raised(read, monkeypatch):
    stage, pictures = read(tiny_vit(), HeadsRequest(), ((40, 40),) * 4)

    def broken(self, batch):
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(ModelStage, "_compute", broken)
    with pytest.raises(ZeroDivisionError, match="a fault"):
        list(Replicas(stage, 2).outcomes(iter(pictures)))


def test_how_many_models_a_run_gets(read):
    stage, _ = read(tiny_vit(), HeadsRequest(), ((40, 40),))
    counts = [replicated(stage, pictures) for pictures in (1, 2, 100)]
    assert counts[0] is stage
    assert [models._count for models in counts[1:]] == [2, 2]
    torch.set_num_threads(1)
    assert replicated(stage, 100) is stage
    torch.set_num_threads(2)
    stage.request = dataclasses.replace(stage.request, batch_size=4)
    assert replicated(stage, 100) is stage


def test_they_take_one_list_of_pictures_after_the_other(read):
    stage, pictures = read(tiny_vit(), HeadsRequest(), ((40, 40),) * 4)
    models = Replicas(stage, 2)
    for part in (pictures[:2], pictures[2:]):
        assert [outcome.job for outcome in models.outcomes(iter(part))] == part


def test_a_run_over_a_folder_uses_them(read, monkeypatch, tmp_path):
    used = []

    def watched(stage, pictures):
        used.append(pictures)
        return replicated(stage, pictures)

    monkeypatch.setattr(local_run, "replicated", watched)
    stage, _ = read(tiny_vit(), HeadsRequest(), ((40, 40),) * 3)
    request = dataclasses.replace(stage.request, workers=0)
    assert len(list(pipeline.run(request, tiny_vit()))) == 4
    assert used == [3]
