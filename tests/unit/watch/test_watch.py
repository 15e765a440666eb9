"""Watching leaves a training as it is, and shows what the live model's own code computes."""

from __future__ import annotations

import logging
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import attnviz
from attnviz.domain import DrawStyle, Fit
from attnviz.domain.kinds import KINDS, HeadsRequest, MatchRequest, RelevanceRequest
from attnviz.errors import AttnvizError, UnsupportedModelError, UsageError
from attnviz.images.fit import prepare
from attnviz.models.training import find_backbone, snapshot_backbone
from attnviz.output.read_record import read_record
from tests.helpers import live_models
from tests.helpers.command_line import arrays, meta
from tests.helpers.photos import save_scene

STEPS = 6
QUICK = {"style": DrawStyle(dpi=30)}


@pytest.fixture(autouse=True)
def one_thread():
    """Threads of such small models only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def picture(tmp_path):
    return save_scene(tmp_path / "scene.png", 40, 40)


def train(model, watch=None):
    """Some steps of training whose every loss hangs on random numbers; what is left of it."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - what a watcher must not touch
    seen = []
    model.register_forward_hook(lambda *_: seen.append(model.training))
    next(model.parameters()).requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    losses = []
    for step in range(STEPS):
        if watch is not None:
            watch(model, step)
        batch = torch.randn(4, 3, live_models.SIDE, live_models.SIDE) + random.random()
        optimizer.zero_grad()
        loss = (model(batch) - np.random.rand()).square().mean()  # noqa: NPY002
        loss.backward()
        if watch is not None:
            watch(model, step)
        optimizer.step()
        losses.append(loss.item())
    return losses, seen, state_of(model)


def state_of(model):
    """Everything about a model and its process that a watcher might touch."""
    return {
        "weights": {name: value.clone() for name, value in model.state_dict().items()},
        "grads": {
            name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()
        },
        "requires": [p.requires_grad for p in model.parameters()],
        "versions": [p._version for p in model.parameters()],
        "modes": [part.training for part in model.modules()],
        "hooks": [
            {name: len(value) for name, value in vars(part).items() if name.endswith("_hooks")}
            for part in model.modules()
        ],
        "attributes": [sorted(vars(part)) for part in model.modules()],
        "random": (torch.get_rng_state(), random.getstate(), np.random.get_state()),  # noqa: NPY002
        "process": (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.deterministic,
            torch.is_autocast_enabled("cpu"),
            logging.getLogger("timm").level,
        ),
    }


def assert_same(left, right, where=""):
    """Equal to the bit, whatever is nested in it."""
    assert type(left) is type(right), where
    if isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), where
        for place, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_same(one, other, f"{where}/{place}")
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    elif isinstance(left, np.ndarray):
        assert (left == right).all(), where
    else:
        assert left == right, where


@pytest.mark.parametrize("kind", live_models.KINDS)
def test_a_watched_training_is_the_same_to_the_bit(kind, picture, tmp_path):
    watch = attnviz.Watch([picture], every=4, out=tmp_path / "out", strict=True, **QUICK)
    without = train(live_models.make(kind))
    assert len(set(without[0])) == STEPS
    assert_same(train(live_models.make(kind), watch), without)
    drawn = sorted(str(path.relative_to(tmp_path / "out")) for path in tmp_path.rglob("*.*.png"))
    assert drawn == [
        f"step0000000{step}/scene.{figure}.png"
        for step in (0, 4)
        for figure in ("heads", "rollout")
    ]


def test_the_losses_hang_on_the_random_state(picture):
    """The test above can fail: a watcher that draws one random number changes the losses."""
    without, _, _ = train(live_models.make("timm"))
    with_one, _, _ = train(live_models.make("timm"), lambda *_: torch.rand(1))
    assert with_one != without


OTHER_SIZES = [("timm", 48), ("hf-vit", 48), ("hf-dinov2", 48)]
"""tests/reference has the original code of DINO and DINOv2 at other sizes."""


@pytest.mark.parametrize(
    ("kind", "size"), [*((kind, 32) for kind in live_models.KINDS), *OTHER_SIZES]
)
def test_what_is_drawn_is_what_the_models_own_code_computes(kind, size, picture, tmp_path):
    model = live_models.make(kind)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    watch = attnviz.Watch(
        picture, [HeadsRequest()], out=tmp_path, save_data=True, strict=True, size=size,
        mean=mean, std=std, **QUICK,
    )  # fmt: skip
    watch(model, 500)
    saved = arrays(tmp_path / "step00000500" / "scene.heads.npz")
    assert model.training
    image = prepare(
        attnviz.read(picture), snapshot_backbone(model).info, size, Fit.ASPECT, mean, std
    )
    rows = live_models.attention_rows(model.eval(), torch.from_numpy(image.tensor)[None])[0]
    found = np.concatenate([saved["prefix"], saved["attention"].reshape(2, -1)], axis=1)
    np.testing.assert_allclose(found, rows.numpy(), rtol=0, atol=2e-5)
    assert rows.max() > 2 / rows.shape[-1]  # not a uniform map, with which everything agrees


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_figure_is_watched(kind, picture, tmp_path):
    targeted = {"relevance": RelevanceRequest, "match": MatchRequest}
    figure = targeted[kind](like=picture) if kind in targeted else kind
    watch = attnviz.Watch(picture, [figure], out=tmp_path, strict=True, save_data=True, **QUICK)
    names = {path.name for path in watch(live_models.make("timm"), 0)}
    assert names >= {f"scene.{kind}.png", f"scene.{kind}.npz"}


def test_the_figure_tells_its_step(picture, tmp_path):
    watch = attnviz.Watch(picture, ["heads"], out=tmp_path, name="my run", strict=True, **QUICK)
    (path,) = watch(live_models.make("timm"), 1500)
    record = read_record(path)
    assert path == tmp_path / "step00001500" / "scene.heads.png"
    assert (record["step"], record["model"]) == (1500, "my run, step 1500")
    assert (record["weights"], record["weights_sha256"]) == ("in training, step 1500", None)
    assert record["random_weights"] is False


def test_only_every_so_many_steps(picture, tmp_path):
    watch = attnviz.Watch(picture, ["heads"], every=3, out=tmp_path, strict=True, **QUICK)
    model = live_models.make("dino")
    assert [bool(watch(model, step)) for step in range(7)] == [True, False, False] * 2 + [True]
    assert watch.draw(model, 7)[0].parent.name == "step00000007"


def test_the_twin_reads_the_live_weights_without_a_copy():
    for kind in ("timm", "dino"):
        model = live_models.make(kind)
        twin = snapshot_backbone(model)
        assert twin.module is not model
        assert twin.module.norm.weight.data_ptr() == model.norm.weight.data_ptr()
        assert not any(p.requires_grad for p in twin.module.parameters())


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.ModuleDict({"backbone": live_models.make("dino", 1)})
        self.teacher = nn.ModuleDict({"backbone": live_models.make("dino", 2)})


def test_of_student_and_teacher_the_teacher_is_watched():
    both = Both()
    assert find_backbone(both) is both.teacher["backbone"]
    assert find_backbone(nn.ModuleDict({"module": both.student})) is both.student["backbone"]


def test_a_compiled_model_is_seen_through():
    model = live_models.make("timm")
    assert find_backbone(torch.compile(model, backend="eager")) is model
    model.blocks[1] = torch.compile(model.blocks[1], backend="eager")
    twin = snapshot_backbone(model)
    assert type(twin.blocks[1]).__name__ == "Block"
    assert type(model.blocks[1]).__name__ == "OptimizedModule"


@pytest.mark.parametrize("kind", ["timm", "dino"])
def test_inside_autocast_the_numbers_stay_those_of_float32(kind, picture, tmp_path):
    model, found = live_models.make(kind), []
    for name, enabled in (("plain", False), ("cast", True)):
        watch = attnviz.Watch(
            picture, ["heads"], out=tmp_path / name, save_data=True, strict=True, **QUICK
        )
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            watch(model, 0)
            assert torch.is_autocast_enabled("cpu") is enabled
        found.append(arrays(tmp_path / name / "step00000000" / "scene.heads.npz"))
    assert_same(*found)


@pytest.mark.parametrize("kind", ["timm", "dino", "hf-vit"])
def test_models_in_half_precision_are_shown_in_float32(kind, picture, tmp_path):
    model = live_models.make(kind).bfloat16()
    watch = attnviz.Watch(picture, ["heads"], out=tmp_path, save_data=True, strict=True, **QUICK)
    watch(model, 0)
    record = meta(tmp_path / "step00000000" / "scene.heads.npz")
    assert record["step"] == 0
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_a_failure_is_told_once_and_training_goes_on(picture, tmp_path, caplog):
    watch = attnviz.Watch(picture, out=tmp_path, **QUICK)
    with caplog.at_level(logging.WARNING), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [watch(nn.Linear(2, 2), step) for step in (0, 500, 1000)] == [(), (), ()]
    (told,) = caplog.records
    assert told.getMessage() == (
        "attention was not drawn at step 0: Linear has no known layout of a Vision Transformer"
    )


def test_strict_raises(picture, tmp_path):
    watch = attnviz.Watch(picture, out=tmp_path, strict=True, **QUICK)
    with pytest.raises(UsageError, match="no known layout of a Vision Transformer"):
        watch(nn.Linear(2, 2), 0)


def test_a_disk_that_cannot_be_written_does_not_stop_training(picture, tmp_path, caplog):
    watch = attnviz.Watch(picture, ["heads"], out=tmp_path / "out", **QUICK)
    (tmp_path / "out").mkdir()  # the check of the folder leaves none behind
    (tmp_path / "out" / "step00000000").write_text("in the way")
    assert watch(live_models.make("timm"), 0) == ()
    assert "cannot be written" in caplog.text


def with_act(model):
    model.blocks[1].mlp.act = nn.GELU(approximate="tanh")


def with_scale(model):
    model.blocks[1].attn.scale = 0.5


def with_eps(model):
    model.norm.eps = 1e-3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_act, "GELU between its layers"),
        (with_scale, "scales its attention by 0.5"),
        (with_eps, "no single norm epsilon"),
    ],
)
def test_what_the_layouts_model_would_compute_otherwise_is_refused(change, reason):
    model = live_models.make("dino")
    change(model)
    with pytest.raises(UnsupportedModelError, match=reason):
        snapshot_backbone(model)


def test_the_norm_epsilon_is_the_live_models():
    torch.manual_seed(0)
    twin = snapshot_backbone(live_models.OriginalVit(eps=1e-3))
    assert {m.eps for m in twin.module.modules() if isinstance(m, nn.LayerNorm)} == {1e-3}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"images": ["gone.png"]}, "gone.png does not exist"),
        ({"images": []}, "no images"),
        ({"figures": ["hats"]}, "no figure is called 'hats'"),
        ({"figures": [RelevanceRequest(like=Path("gone.png"))]}, "gone.png is not a file"),
        ({"figures": ["heads", HeadsRequest(layer=0)]}, "share a name"),
        ({"every": 0}, "every=0 is not a number"),
    ],
)
def test_wrong_use_is_told_before_training(given, reason, picture, tmp_path):
    with pytest.raises(AttnvizError, match=reason):
        attnviz.Watch(**({"images": [picture], "out": tmp_path / "out"} | given))


def test_only_the_first_process_draws(picture, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    watch = attnviz.Watch(picture, out=tmp_path / "out", strict=True, **QUICK)
    assert watch(live_models.make("timm"), 0) == ()
    assert not (tmp_path / "out").exists()
