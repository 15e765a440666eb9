"""How far a training had come, as its checkpoint says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from attnviz.errors import CheckpointError
from attnviz.models.weights.file import read_weights
from attnviz.models.weights.text import read_json

COUNTERS = ("epoch", "global_step", "iteration", "iter", "step")
"""Keys under which training code keeps its counters, the usual ones first."""

TRAINER_STATE = "trainer_state.json"
"""What the trainer of transformers writes beside the weights."""


def training_progress(path: Path) -> dict[str, int]:
    """The counters of a training checkpoint by key; empty where there are none.

    path: a file, or a folder of transformers. Tensors stay memory-mapped. What cannot be read has
    no counters here; loading its weights will say what is wrong.
    """
    try:
        if path.is_dir():
            return _counters(read_json(path / TRAINER_STATE))
        content = read_weights(path)
    except CheckpointError:
        return {}
    meta = content.get("meta")  # of OpenMMLab
    return _counters(content) or (_counters(meta) if isinstance(meta, Mapping) else {})


def _counters(content: Mapping[str, Any]) -> dict[str, int]:
    numbers = {key: _whole(content[key]) for key in COUNTERS if key in content}
    return {key: number for key, number in numbers.items() if number is not None}


def _whole(value: Any) -> int | None:
    if isinstance(value, Tensor) and value.dim() == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value >= 0 and value == int(value) else None
