"""TensorBoard, Lightning's trainer and that of transformers, each the real one."""

from __future__ import annotations

import importlib
import sys
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import attnviz
from attnviz.domain import DrawStyle
from attnviz.errors import UsageError
from tests.helpers import live_models
from tests.helpers.photos import save_scene

WRITERS = ("torch.utils.tensorboard", "tensorboardX")


@pytest.fixture
def watch(tmp_path):
    picture = save_scene(tmp_path / "scene.png", 40, 40)
    return attnviz.Watch(
        picture, ["heads"], every=2, out=tmp_path / "out", strict=True, style=DrawStyle(dpi=30)
    )


def drawn(tmp_path):
    return sorted(int(path.name.removeprefix("step")) for path in (tmp_path / "out").iterdir())


def test_tensorboard_gets_the_pixels_of_the_files(watch, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    watch = attnviz.Watch(
        watch.images, ["heads", "rollout"], every=2, out=tmp_path / "out", strict=True,
        style=DrawStyle(dpi=30), formats=["pdf"], tensorboard=tmp_path / "events",
    )  # fmt: skip
    model = live_models.make("timm")
    for step in range(3):
        watch(model, step)
    events = EventAccumulator(str(tmp_path / "events")).Reload()
    tags = ["attention/scene.heads", "attention/scene.rollout"]
    assert sorted(events.Tags()["images"]) == tags
    assert [event.step for event in events.Images(tags[0])] == [0, 2]
    shown = tmp_path / "shown.png"
    shown.write_bytes(events.Images(tags[0])[1].encoded_image_string)
    file = tmp_path / "out" / "step00000002" / "scene.heads.png"
    assert file.with_suffix(".pdf").is_file()
    assert (np.asarray(Image.open(shown)) == np.asarray(Image.open(file).convert("RGB"))).all()


def test_a_writer_that_is_open_already_is_used(tmp_path):
    class Writer:
        def __init__(self):
            self.added = []

        def add_image(self, tag, pixels, global_step, dataformats):
            self.added.append((tag, pixels.shape[-1], pixels.dtype, global_step, dataformats))

        def flush(self):
            pass

    writer = Writer()
    picture = save_scene(tmp_path / "scene.png", 40, 40)
    attnviz.Watch(picture, ["heads"], out=tmp_path, tensorboard=writer, strict=True)(
        live_models.make("timm"), 0
    )
    assert writer.added == [("attention/scene.heads", 3, np.uint8, 0, "HWC")]


@pytest.mark.parametrize("there", [(), (WRITERS[1],)])
def test_tensorboard_that_is_not_installed(there, tmp_path, monkeypatch):
    made = []
    for name in WRITERS:
        module = type(sys)(name)
        module.SummaryWriter = made.append
        monkeypatch.setitem(sys.modules, name, module if name in there else None)
    picture = save_scene(tmp_path / "scene.png", 40, 40)
    if there:
        attnviz.Watch(picture, out=tmp_path / "out", tensorboard=tmp_path / "events")
        assert made == [str(tmp_path / "events")]
        return
    with pytest.raises(UsageError, match="tensorboard is not installed") as told:
        attnviz.Watch(picture, out=tmp_path / "out", tensorboard=tmp_path / "events")
    assert "attnviz[tensorboard]" in told.value.hint


def batches():
    torch.manual_seed(3)
    return [torch.randn(2, 3, live_models.SIDE, live_models.SIDE) for _ in range(8)]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_lightning(watch, tmp_path, accumulate):
    pytorch_lightning = pytest.importorskip("pytorch_lightning")

    class Module(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = live_models.make("dino")
            self.losses = []

        def training_step(self, batch, _index):
            loss = self.net(batch).square().mean()
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-2)

    def losses(callbacks):
        torch.manual_seed(0)
        module = Module()
        with warnings.catch_warnings():
            # Lightning advises on workers and devices.
            warnings.simplefilter("ignore")
            trainer = pytorch_lightning.Trainer(
                max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks,
                accumulate_grad_batches=accumulate, default_root_dir=tmp_path,
            )  # fmt: skip
            trainer.fit(module, torch.utils.data.DataLoader(batches(), batch_size=None))
        return module.losses

    adapter = importlib.import_module("attnviz.watch.lightning").WatchCallback(watch)
    assert losses([adapter]) == losses([])
    assert drawn(tmp_path) == list(range(0, 8 // accumulate + 1, 2))


def test_the_trainer_of_transformers(watch, tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = live_models.make("hf-vit")

        def forward(self, pixels):
            return {"loss": self.net(pixels).square().mean()}

    def losses(callbacks):
        torch.manual_seed(0)
        options = transformers.TrainingArguments(
            output_dir=str(tmp_path / "run"), max_steps=4, per_device_train_batch_size=2,
            use_cpu=True, report_to=[], logging_steps=1, save_strategy="no", disable_tqdm=True,
            remove_unused_columns=False,
        )  # fmt: skip
        pictures = [{"pixels": picture} for batch in batches() for picture in batch]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = transformers.Trainer(
                WithLoss(), options, train_dataset=pictures, callbacks=callbacks
            )
            trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    adapter = importlib.import_module("attnviz.watch.huggingface").WatchCallback(watch)
    without = losses([])
    assert len(without) == 4
    assert losses([adapter]) == without
    assert drawn(tmp_path) == [0, 2, 4]


@pytest.mark.parametrize(
    ("adapter", "packages"),
    [("lightning", ("lightning.pytorch", "pytorch_lightning")), ("huggingface", ("transformers",))],
)
def test_an_adapter_without_its_framework(adapter, packages, monkeypatch):
    monkeypatch.delitem(sys.modules, f"attnviz.watch.{adapter}", raising=False)
    for name in packages:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match="is not installed"):
        importlib.import_module(f"attnviz.watch.{adapter}")
    monkeypatch.undo()
    sys.modules.pop(f"attnviz.watch.{adapter}", None)
