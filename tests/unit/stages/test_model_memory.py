"""Batches that do not fit into memory: halved, remembered, and every picture done."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attnviz.domain import DrawStyle
from attnviz.domain.events import Done, Failed
from attnviz.domain.kinds import HeadsRequest
from attnviz.domain.requests import InputRequest, ModelRequest, OutputRequest, RunRequest
from attnviz.runs import command as pipeline
from attnviz.stages import model as model_stage
from tests.helpers.command_line import files_below
from tests.helpers.photos import save_scene
from tests.helpers.planted import tiny_vit


@pytest.fixture
def request_for(tmp_path):
    def make(pictures: int, batch_size: int = 8) -> RunRequest:
        for number in range(pictures):
            save_scene(tmp_path / "in" / f"{number}.png", 40, 40)
        return RunRequest(
            command=HeadsRequest(distance=False),
            model=ModelRequest(),
            inputs=InputRequest((str(tmp_path / "in"),), size="original"),
            output=OutputRequest(tmp_path / "out", save_data=True),
            style=DrawStyle(dpi=30),
            batch_size=batch_size,
            workers=0,
        )

    return make


def holding(monkeypatch, most: int, error=torch.OutOfMemoryError):
    """The sizes of the batches that were tried, where no more than ``most`` pictures fit."""
    tried = []
    compute = model_stage.compute

    def limited(model, batch, *rest):
        tried.append(batch.shape[0])
        if batch.shape[0] > most:
            raise error("CUDA out of memory. Tried to allocate 2.00 GiB")
        return compute(model, batch, *rest)

    monkeypatch.setattr(model_stage, "compute", limited)
    return tried


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError, RuntimeError])
def test_a_batch_that_does_not_fit_is_halved_once_and_for_all(request_for, monkeypatch, error):
    tried = holding(monkeypatch, 3, error)
    events = list(pipeline.run(request_for(20), tiny_vit()))
    assert sum(isinstance(event, Done) for event in events) == 20
    assert not any(isinstance(event, Failed) for event in events)
    # 8 do not fit, nor do 4, but 2 do: from then on pictures are gathered by two.
    assert tried == [8, 4] + [2] * 10


def test_halving_changes_no_number(request_for, monkeypatch, tmp_path):
    list(pipeline.run(request_for(8), tiny_vit()))
    whole = {name: (tmp_path / "out" / name).read_bytes() for name in files_below(tmp_path / "out")}
    holding(monkeypatch, 3)
    list(pipeline.run(request_for(8), tiny_vit()))
    assert len(whole) == 16
    for name, data in whole.items():
        if Path(name).suffix == ".png":
            assert (tmp_path / "out" / name).read_bytes() == data


def test_a_single_picture_that_does_not_fit_fails_and_the_rest_goes_on(request_for, monkeypatch):
    tried = holding(monkeypatch, 0)
    events = list(pipeline.run(request_for(3, batch_size=2), tiny_vit()))
    failed = [event for event in events if isinstance(event, Failed)]
    assert len(failed) == 3
    assert all("out of memory at 40x40 pixels" in event.error.message for event in failed)
    assert max(tried) == 2


def test_sizes_have_limits_of_their_own(request_for, monkeypatch, tmp_path):
    request = request_for(4, batch_size=4)
    for number in range(4):
        save_scene(tmp_path / "in" / f"wide-{number}.png", 40, 80)
    tried = []
    compute = model_stage.compute

    def limited(model, batch, *rest):
        tried.append((batch.shape[0], batch.shape[-1]))
        if batch.shape[0] * batch.shape[-1] > 160:
            raise torch.OutOfMemoryError
        return compute(model, batch, *rest)

    monkeypatch.setattr(model_stage, "compute", limited)
    events = list(pipeline.run(request, tiny_vit()))
    assert sum(isinstance(event, Done) for event in events) == 8
    assert tried.count((4, 40)) == 1
    assert tried.count((4, 80)) == 1
    assert tried.count((2, 80)) == 2
