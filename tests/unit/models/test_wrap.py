"""Modules in memory: their own attention is what is shown, and they stay the same to the bit."""

from __future__ import annotations

import copy

import numpy as np
import peft
import pytest
import timm
import torch
import transformers
from PIL import Image
from torch import nn

import attnviz
from attnviz.attention.capture import capture
from attnviz.errors import UnsupportedModelError, UsageError
from attnviz.output.read_record import read_record
from tests.helpers import live_models
from tests.helpers.checkpoints import pixels, randomise, undrawn
from tests.helpers.versions import OLD_TRANSFORMERS
from tests.unit.watch.test_watch import assert_same, state_of

TOLERANCE = 2e-5
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 32,
    "patch_size": 8, "attn_implementation": "eager",
}  # fmt: skip
IMAGE = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
BATCH = pixels(32, 32)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def hf(name, **more):
    config = getattr(transformers, f"{name.removesuffix('Model')}Config")
    return randomise(undrawn(getattr(transformers, name), config(**(SMALL | more)))).train()


HF = {
    "vit": lambda: hf("ViTModel", intermediate_size=64),
    "dinov2": lambda: hf("Dinov2Model"),
    "dinov2-registers": lambda: hf("Dinov2WithRegistersModel", num_register_tokens=2),
    "dinov3": lambda: hf("DINOv3ViTModel", intermediate_size=64, num_register_tokens=2),
    "clip": lambda: hf("CLIPVisionModel", intermediate_size=64),
}


def ours(model):
    """The attention of every layer, (L, H, N, N)."""
    found = []
    capture(
        model, BATCH, model.info.depth - 1,
        lambda call: found.append(call.rows(torch.arange(call.query.shape[-2]))[0]),
    )  # fmt: skip
    return torch.stack(found)


@torch.no_grad()
def theirs(module):
    """The last attention by transformers itself, of a copy in evaluation mode."""
    own = copy.deepcopy(module).eval()
    return own(pixel_values=BATCH, output_attentions=True).attentions[-1][0]


@pytest.mark.parametrize("kind", HF)
def test_the_attention_is_the_modules_own(kind):
    module = HF[kind]()
    before = state_of(module)
    model = attnviz.wrap(module)
    assert_same(state_of(module), before)
    found, expected = ours(model), theirs(module)
    torch.testing.assert_close(found[-1], expected, rtol=0, atol=TOLERANCE)
    assert expected.max() > 2 / expected.shape[-1]
    assert any("compared with its own code" in note for note in model.notes)
    assert "are assumed" in model.notes[-1]
    assert model.info.statistics_assumed


@pytest.mark.parametrize("kind", live_models.KINDS)
def test_models_in_training_are_the_same_to_the_bit_afterwards(kind):
    module = live_models.make(kind)
    module.register_forward_hook(lambda *_: pytest.fail("the module was run"))
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = state_of(module)
    maps = attnviz.heads(attnviz.wrap(module, mean=(0.5,) * 3, std=(0.5,) * 3), IMAGE)
    assert_same(state_of(module), before)
    module._forward_hooks.clear()
    batch = torch.from_numpy(IMAGE / np.float32(127.5) - 1).permute(2, 0, 1)[None].float()
    rows = live_models.attention_rows(module.eval(), batch)[0].numpy()
    found = np.concatenate([maps.prefix, maps.attention.reshape(2, -1)], axis=1)
    np.testing.assert_allclose(found, rows, rtol=0, atol=TOLERANCE)


def adapted(module, targets, **more):
    """The module with adapters whose weights are not the zeros that peft begins with."""
    config = peft.LoraConfig(target_modules=targets, r=4, **more)
    with_adapters = peft.get_peft_model(module, config)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in with_adapters.named_parameters():
            if "lora_" in name and "magnitude" not in name:
                parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    return with_adapters


# What transformers calls the layers of its ViT.
QUERY, VALUE, HIDDEN = (
    ("query", "value", "intermediate.dense") if OLD_TRANSFORMERS else ("q_proj", "v_proj", "fc1")
)
PEFT = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")


@PEFT
@pytest.mark.parametrize("more", [{}, {"use_dora": True}, {"lora_dropout": 0.5}])
def test_adapters_are_merged_and_it_is_said(more, tmp_path):
    plain = HF["vit"]()
    unadapted = ours(attnviz.wrap(plain))
    module = adapted(plain, [QUERY, VALUE, HIDDEN], **more).train()
    before = state_of(module)
    model = attnviz.wrap(module)
    assert_same(state_of(module), before)
    found, expected = ours(model), theirs(module)
    torch.testing.assert_close(found[-1], expected, rtol=0, atol=TOLERANCE)
    assert (found - unadapted).abs().max() > 0.01
    assert "ViTModel: adapters merged in 9 layers" in model.notes
    attnviz.heads(model, IMAGE).save(tmp_path / "x.png", dpi=30)
    assert read_record(tmp_path / "x.png")["weights"] == "a module in memory, adapters merged"


@PEFT
@pytest.mark.parametrize("state", ["disabled", "merged", "merged and disabled"])
def test_adapters_count_as_they_are_switched(state):
    module = adapted(HF["vit"](), [QUERY])
    if "merged" in state:
        module.base_model.merge_adapter()
    if "disabled" in state:
        module.base_model.disable_adapter_layers()
    found = ours(attnviz.wrap(module))
    torch.testing.assert_close(found[-1], theirs(module), rtol=0, atol=TOLERANCE)


@PEFT
def test_adapters_of_timms_models_and_saved_modules():
    module = adapted(live_models.make("timm"), ["qkv", "proj"], modules_to_save=["norm"])
    live = module.base_model.model
    with torch.no_grad():
        live.norm.modules_to_save["default"].weight.mul_(3)
    before = state_of(module)
    model = attnviz.wrap(module)
    assert_same(state_of(module), before)
    with torch.no_grad():
        expected = live.eval().forward_features(BATCH)
    torch.testing.assert_close(model.run(BATCH), expected, rtol=1e-5, atol=1e-4)
    assert not any("lora" in name for name, _ in model.module.named_modules())


def test_compiled_and_distributed_modules(tmp_path):
    module = live_models.make("timm")
    plain = ours(attnviz.wrap(module))
    assert torch.equal(ours(attnviz.wrap(torch.compile(module, backend="eager"))), plain)
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        parallel = nn.parallel.DistributedDataParallel(module)
        before = state_of(parallel)
        assert torch.equal(ours(attnviz.wrap(parallel)), plain)
        assert_same(state_of(parallel), before)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("kind", live_models.KINDS)
def test_compiled_blocks_are_seen_through(kind):
    module = live_models.make(kind)
    plain = ours(attnviz.wrap(module))
    lists = [part for part in module.modules() if isinstance(part, nn.ModuleList | nn.Sequential)]
    blocks = next(part for part in lists if len(part) == live_models.DEPTH)
    blocks[1] = torch.compile(blocks[1], backend="eager")
    compiled = torch.compile(module, backend="eager")
    before = state_of(compiled)
    assert torch.equal(ours(attnviz.wrap(compiled)), plain)
    assert_same(state_of(compiled), before)


@pytest.mark.parametrize("kind", ["timm", "dino", "hf-vit"])
def test_later_changes_of_the_module_are_not_seen(kind):
    module = live_models.make(kind)
    model = attnviz.wrap(module)
    before = ours(model)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert torch.equal(ours(model), before)
    assert any("as they were when it was wrapped" in note for note in model.notes)


def test_a_module_that_computes_something_else_is_refused():
    module = live_models.make("hf-vit")
    for part in module.modules():
        if type(part).__name__ in ("GELUActivation", "GELU"):
            part.forward = torch.tanh
    with pytest.raises(UnsupportedModelError, match="computes something else") as caught:
        attnviz.wrap(module)
    assert "activation" in caught.value.hint
    assert attnviz.wrap(module, verify=False).info.depth == live_models.DEPTH


def test_a_watch_refuses_it_before_it_draws(tmp_path):
    picture = tmp_path / "x.png"
    Image.fromarray(IMAGE).save(picture)
    module = live_models.make("hf-vit")
    for part in module.modules():
        if type(part).__name__ in ("GELUActivation", "GELU"):
            part.forward = torch.tanh
    watch = attnviz.Watch([picture], ["heads"], out=tmp_path / "out", strict=True)
    with pytest.raises(UnsupportedModelError, match="computes something else"):
        watch(module, 0)
    assert not (tmp_path / "out").exists()


def test_other_models_of_timm_are_refused_by_their_family():
    module = timm.create_model("cait_xxs24_224", depth=1, depth_token_only=1)
    with pytest.raises(UnsupportedModelError, match=r"Cait is not supported \(timm's cait\)"):
        attnviz.wrap(module)


def test_the_statistics_are_those_that_are_said():
    processor = transformers.ViTImageProcessor(
        image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6], size={"height": 48, "width": 48}
    )
    info = attnviz.wrap(HF["vit"](), processor=processor).info
    assert (info.mean, info.std, info.native_size) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), (48, 48))
    assert not info.statistics_assumed
    model = attnviz.wrap(live_models.make("timm"), name="my run", mean=(0, 0, 0), std=(1, 1, 1))
    assert (model.info.name, model.info.mean, model.info.std) == ("my run", (0, 0, 0), (1, 1, 1))
    assert "my run: patch 8, width 32, 3 layers, 2 heads, from a module in memory" in repr(model)


@pytest.mark.parametrize(
    ("module", "options", "reason"),
    [
        (3, {}, "object of type int is not a module"),
        (nn.Linear(2, 2), {}, "no known layout"),
        (None, {"mean": (0, 0, 0)}, "mean and std belong together"),
        (None, {"mean": (0,) * 3, "std": (1,) * 3, "processor": object()}, "says mean and std too"),
    ],
)
def test_wrong_use_is_refused(module, options, reason):
    with pytest.raises(UsageError, match=reason):
        attnviz.wrap(live_models.make("timm") if module is None else module, **options)


def test_figures_of_it_are_drawn_by_no_command(tmp_path):
    attnviz.heads(attnviz.wrap(live_models.make("timm")), IMAGE).save(tmp_path / "x.png", dpi=30)
    record = read_record(tmp_path / "x.png")
    assert record["in_python"] is True
    assert record["weights"] == "a module in memory"
