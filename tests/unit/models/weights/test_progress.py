"""The counters of training checkpoints, in the layouts in which they come."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from attnviz.models.weights.progress import training_progress

WEIGHTS = {"weight": torch.zeros(2)}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"teacher": WEIGHTS, "epoch": 100}, {"epoch": 100}),
        ({"state_dict": WEIGHTS, "epoch": 3, "global_step": 700}, {"epoch": 3, "global_step": 700}),
        ({"model": WEIGHTS, "iteration": torch.tensor(12)}, {"iteration": 12}),
        ({"meta": {"epoch": 4, "iter": 9}, "state_dict": WEIGHTS}, {"epoch": 4, "iter": 9}),
        ({"model": WEIGHTS, "epoch": 2.0}, {"epoch": 2}),
        ({"model": WEIGHTS, "epoch": 2.5, "step": True, "iter": "7"}, {}),
        ({"model": WEIGHTS, "epoch": -1}, {}),
        (WEIGHTS, {}),
    ],
)
def test_counters_of_a_file(tmp_path, content, expected):
    torch.save(content, tmp_path / "c.pth")
    assert training_progress(tmp_path / "c.pth") == expected


def test_counters_beside_weights_of_transformers(tmp_path):
    assert training_progress(tmp_path) == {}
    (tmp_path / "trainer_state.json").write_text(json.dumps({"epoch": 1.5, "global_step": 500}))
    assert training_progress(tmp_path) == {"global_step": 500}


def test_what_cannot_be_read_has_none(tmp_path):
    save_file(WEIGHTS, tmp_path / "w.safetensors")
    (tmp_path / "broken.pth").write_bytes(b"PK\x03\x04 and no more")
    for name in ("w.safetensors", "broken.pth", "gone.pth"):
        assert training_progress(tmp_path / name) == {}
