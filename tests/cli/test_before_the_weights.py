"""What the name of a model tells is told before torch is imported and anything is downloaded."""

from __future__ import annotations

import pytest

from tests.helpers.photos import save_scene


@pytest.fixture
def no_weights(real, tmp_path, monkeypatch):
    """The command line with a photo, where no model may be loaded."""
    monkeypatch.setattr(
        "attnviz.models.load.load_backbone", lambda _request: pytest.fail("a model was loaded")
    )
    save_scene(tmp_path / "a.png", 40, 40)
    save_scene(tmp_path / "masks" / "a.png", 40, 40)
    return real


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("heads", "--model", "dinov2_vitg14", "--layer", "45"), "layer 45 does not exist"),
        (("heads", "--layer", "12"), "layer 12 does not exist: dino_vits8 has layers 0 to 11"),
        (("layers", "--heads", "6"), "head 6 does not exist"),
        (("rollout", "--start-layer", "-13"), "layer -13 does not exist"),
        (("score", "--model-arg", "depth=3", "--layer", "3"), "has layers 0 to 2"),
        (("features", "--layer", "12"), "layer 12 does not exist"),
        (("qkv", "--size", "30", "--fit", "pad"), "size 30 is not a multiple of the patch size 8"),
        (("patch", "--size", "7"), "size 7 is smaller than one patch of 8"),
        (("relevance", "--class", "0"), "dino_vits8 has no classifier"),
        (("heads", "--width", "1"), "--width: 1 is out of range"),
        (("compare", "--show", "head:6"), "--show head:6: dino_vits8 has heads 0 to 5"),
        (("explore", "--layers", "12"), "layer 12 does not exist"),
    ],
)  # fmt: skip
def test_an_option_that_the_named_model_cannot_honour(no_weights, arguments, message):
    command, *options = arguments
    run = no_weights(command, "a.png", *options)
    assert (run.code, run.out) == (2, "")
    assert message in run.err.splitlines()[0]


def test_eval_asks_before_too(no_weights):
    run = no_weights("eval", "a.png", "masks", "--layer", "12")
    assert run.code == 2
    assert "layer 12 does not exist" in run.err


@pytest.mark.parametrize("more", [(), ("--list",), ("--check",)])
def test_a_figure_set_is_checked_whole_before_its_first_figure(no_weights, tmp_path, more):
    (tmp_path / "set.toml").write_text(
        '[defaults]\nmodel = "demo"\n\n[[figure]]\ncommand = "heads"\nimages = "a.png"\n\n'
        '[[figure]]\ncommand = "rollout"\nimages = "a.png"\n\n'
        '[[figure]]\ncommand = "qkv"\nimages = "a.png"\nlayer = 9\n',
        encoding="utf-8",
    )
    run = no_weights("render", "set.toml", *more)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("error: set.toml:15: layer 9 does not exist: demo has layers 0 to 5")
    assert not (tmp_path / "attnviz-out").exists()
