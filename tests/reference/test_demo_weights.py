"""The weights that come with the package do what their model card says, without a network."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from attnviz.models.catalogue import MODELS, packaged_weights
from tests.helpers.command_line import attnviz

ROOT = Path(__file__).parents[2]
SCENES = ROOT / "tests" / "data" / "demo_scenes"
CARD = (ROOT / "attnviz" / "data" / "MODEL_CARD.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def scores():
    """The table of `attnviz eval` on the committed scenes, by its names."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = attnviz("eval", SCENES, SCENES, "--model", "demo", "--format", "json", "--quiet")
    assert code == 0
    return json.loads(out.getvalue())


def stated(row):
    """The DINO column of the card's table of the committed scenes."""
    table = CARD.split("<!-- committed scores -->")[1].split("<!-- end -->")[0]
    cell = re.search(rf"\| {row} \|.*\| ([\d.]+)%? \|", table)
    assert cell
    return float(cell[1])


@pytest.mark.parametrize(
    ("row", "name", "unit"),
    [
        ("mean map", "mean_map", 1),
        ("best fixed head", "best_fixed_head", 1),
        ("best head per image", "best_head_per_image", 1),
        ("highest cell on the object", "peak_on_object", 100),
    ],
)
def test_the_weights_reach_what_their_card_says(scores, row, name, unit):
    assert scores["pictures"] == 25
    assert scores[name] * unit == pytest.approx(stated(row), abs=0.006 * unit)


def test_the_weights_draw_objects_better_than_untrained_and_supervised_ones(scores):
    assert scores["mean_map"] > 0.45
    assert scores["best_fixed_head"] > 0.40
    assert scores["peak_on_object"] >= 0.92


def test_the_file_is_small_and_every_tensor_of_it_loads(tmp_path, capsys):
    assert packaged_weights(MODELS["demo"]).stat().st_size < 6_000_000
    code = attnviz("heads", SCENES / "scene_128.png", "--model", "demo", "--out", tmp_path)
    assert code == 0
    assert "78 of 78 tensors from demo.safetensors" in capsys.readouterr().err
