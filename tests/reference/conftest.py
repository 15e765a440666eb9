"""The arrays of the original code, and those that the command line saves for the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers import formula_weights
from tests.helpers.command_line import arrays, attnviz

DATA = Path(__file__).parent / "data"


class Original:
    """One file of the original code's arrays, with its input image and the model's name."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.model, size = self.name.rsplit("_", 1)
        self.picture = DATA / f"cat_{size}.png"
        self.height, self.width = (int(side) for side in size.split("x"))
        with np.load(path) as stored:
            self.arrays = {name: stored[name] for name in stored.files}

    def __getitem__(self, name):
        return self.arrays[name]

    @property
    def prefix(self):
        """The number of tokens before the patches."""
        return self["cls_rows"].shape[-1] - self["to_cls_last"].shape[-1]


@pytest.fixture(scope="session")
def checkpoint_of(tmp_path_factory):
    """The path of a model's formula weights, written once in the original file's layout."""
    folder = tmp_path_factory.mktemp("formula-weights")

    def path_of(model: str) -> Path:
        path = folder / f"{model}.pth"
        if not path.exists():
            torch.save(formula_weights.state_dict(model), path)
        return path

    return path_of


@pytest.fixture(scope="session")
def saved(checkpoint_of, tmp_path_factory):
    """The arrays that a command saves for the image of an original; each command runs once."""
    folder = tmp_path_factory.mktemp("saved")
    runs = {}

    def arrays_of(original: Original, command: str, *options: str):
        key = (original.name, command, options)
        if key not in runs:
            out = folder / str(len(runs))
            code = attnviz(
                command, original.picture, "--checkpoint", checkpoint_of(original.model),
                "--save-data", "--size", "original", "--dpi", "40", "--quiet", "--out", out,
                *options,
            )  # fmt: skip
            assert code == 0
            runs[key] = arrays(out / f"{original.picture.stem}.{command}.npz")
        return runs[key]

    return arrays_of
