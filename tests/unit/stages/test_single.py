"""One image through a model: the maps of the batch path, its memory, its check, its record."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import attnviz
from attnviz.attention import memory, verify
from attnviz.attention.compute import compute
from attnviz.domain.kinds import HeadsRequest, LayersRequest, ScoreRequest
from attnviz.domain.requests import InputRequest
from attnviz.errors import AttentionError, MemoryNeededError
from attnviz.stages.single import SingleImage
from tests.helpers.planted import tiny_vit

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 56, 3), np.uint8)


@pytest.fixture
def image():
    return attnviz.read(PIXELS)


def single(image, *, check=False, **inputs):
    return SingleImage.of(tiny_vit(), image, InputRequest(("array",), **inputs), verify=check)


@pytest.mark.parametrize("command", [HeadsRequest(), LayersRequest(), ScoreRequest(layer=0)])
def test_the_maps_are_those_of_the_model(image, command):
    one = single(image, size=48)
    prepared = attnviz.prepare(PIXELS, one.model, size=48)
    np.testing.assert_array_equal(one.prepared.tensor, prepared.tensor)
    batch = torch.from_numpy(prepared.tensor)[None]
    (expected,) = compute(one.model, batch, [prepared.geometry], command)
    maps = one.maps(command)
    assert type(maps) is type(expected)
    for field in dataclasses.fields(maps):
        np.testing.assert_array_equal(getattr(maps, field.name), getattr(expected, field.name))


def test_mean_and_std_are_those_of_the_inputs(image):
    plain = single(image).prepared.tensor  # (x - 0.5) / 0.5
    shifted = single(image, mean=(0.25,) * 3, std=(0.25,) * 3).prepared.tensor
    np.testing.assert_allclose(shifted, 2 * plain + 1, rtol=0, atol=1e-5)


def test_what_does_not_fit_is_refused_with_the_size_that_does(image, monkeypatch):
    one = single(image)
    info, device = one.model.info, one.model.device
    size = one.prepared.geometry.model_input
    needed = memory.needed_bytes(info, memory.tokens_of(info, size), HeadsRequest(), device)
    monkeypatch.setattr(memory, "free_bytes", lambda _: needed / memory.SHARE - 1)
    with pytest.raises(MemoryNeededError, match="GB are free") as caught:
        one.maps(HeadsRequest())
    assert "largest square that fits is about --size" in caught.value.hint
    monkeypatch.setattr(memory, "free_bytes", lambda _: needed / memory.SHARE + 1)
    one.maps(HeadsRequest())


def test_the_api_refuses_what_does_not_fit_too(monkeypatch):
    model = tiny_vit()
    prepared = attnviz.prepare(PIXELS, model)
    monkeypatch.setattr(memory, "free_bytes", lambda _: 1000.0)
    with pytest.raises(MemoryNeededError):
        attnviz.heads(model, prepared)


def test_the_check_is_made_once_for_all_commands(image, monkeypatch):
    calls = []
    row_blocks = verify.row_blocks
    monkeypatch.setattr(
        verify, "row_blocks", lambda *args, **more: calls.append(1) or row_blocks(*args, **more)
    )
    one = single(image, check=True)
    one.maps(HeadsRequest())
    one.maps(LayersRequest())
    assert len(calls) == one.model.info.depth
    (note,) = one.notes
    assert note.startswith("verified: attention times V is the model's own output in all 3 layers")
    unchecked = single(image)
    unchecked.maps(HeadsRequest())
    assert (len(calls), unchecked.notes) == (3, ())


def test_wrong_attention_gives_no_maps(image, monkeypatch):
    def nothing(*_, output):
        output.zero_()
        return iter(())

    monkeypatch.setattr(verify, "row_blocks", nothing)
    with pytest.raises(AttentionError, match="layer 0 times V differs"):
        single(image, check=True).maps(HeadsRequest())


def test_the_record_says_how_the_image_was_taken(image):
    one = single(image, size=48)
    made = one.provenance("explore", {"size": "48"})
    assert (made.command, made.options, made.device) == ("explore", {"size": "48"}, "cpu")
    assert (made.image, made.image_sha256) == ("array", image.sha256)
    assert (made.model, made.geometry) == (one.model.info, one.prepared.geometry)
    assert set(made.versions) >= {"attnviz", "python", "torch", "timm", "numpy"}
