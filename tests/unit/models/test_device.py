"""Devices, and float32 that is not rounded to TF32 while a model runs."""

from __future__ import annotations

import threading

import pytest
import torch

from attnviz.domain import Precision, Size
from attnviz.domain.requests import ModelRequest
from attnviz.errors import UsageError
from attnviz.models.device import arithmetic_of, choose_device, exact_float32, torch_dtype
from attnviz.models.load import load_backbone
from tests.helpers.planted import tiny_vit

BACKENDS = torch.backends
# Before torch 2.9 the older switches are all there is.
NEWER = hasattr(BACKENDS.cudnn, "conv")
OPERATIONS = (
    [
        *(BACKENDS.cudnn.conv, BACKENDS.cudnn.rnn, BACKENDS.cuda.matmul),
        *(BACKENDS.mkldnn.conv, BACKENDS.mkldnn.rnn, BACKENDS.mkldnn.matmul),
    ]
    if NEWER
    else []
)
newer_torch = pytest.mark.skipif(not NEWER, reason="a switch for each operation: torch 2.9")


def older(read):
    """What an older switch of torch says; torch refuses where a user set it in both ways."""
    try:
        return read()
    except RuntimeError:
        return "mixed"


def state():
    """All that torch says about how float32 may be rounded."""
    return (
        older(lambda: BACKENDS.cudnn.allow_tf32),
        older(lambda: BACKENDS.cuda.matmul.allow_tf32),
        older(torch.get_float32_matmul_precision),
        BACKENDS.fp32_precision if NEWER else None,
        *(operation.fp32_precision for operation in OPERATIONS),
    )


@pytest.fixture(autouse=True)
def as_before():
    before = state()
    yield
    if NEWER:
        BACKENDS.fp32_precision = before[3]
    BACKENDS.cudnn.allow_tf32 = before[0]
    torch.set_float32_matmul_precision(before[2])
    for operation, value in zip(OPERATIONS, before[4:], strict=True):
        operation.fp32_precision = value
    assert state() == before


def cudnn_off():
    BACKENDS.cudnn.allow_tf32 = False


def products_in_tf32():
    torch.set_float32_matmul_precision("high")


def products_in_bfloat16():
    torch.set_float32_matmul_precision("medium")


def everything_in_tf32():
    BACKENDS.cudnn.allow_tf32 = True
    BACKENDS.cuda.matmul.allow_tf32 = True


def newer_switches():
    BACKENDS.cuda.matmul.fp32_precision = "tf32"


@pytest.mark.parametrize(
    "user",
    [lambda: None, cudnn_off, products_in_tf32, products_in_bfloat16, everything_in_tf32,
     pytest.param(newer_switches, marks=newer_torch)],
)  # fmt: skip
def test_tf32_is_off_inside_and_as_before_afterwards(user):
    user()
    before = state()
    with exact_float32():
        assert state()[:3] == (False, False, "highest")
        assert set(state()[4:]) <= {"ieee"}
    assert state() == before


def test_torch_has_it_on_for_convolutions_by_itself():
    """Were it not so, nothing would have to be switched."""
    assert BACKENDS.cudnn.allow_tf32
    assert not NEWER or BACKENDS.cudnn.conv.fp32_precision == "tf32"


@newer_torch
def test_a_setting_that_follows_the_general_one_still_does_afterwards():
    BACKENDS.fp32_precision = "tf32"
    assert BACKENDS.mkldnn.conv.fp32_precision == "tf32"
    with exact_float32():
        assert BACKENDS.mkldnn.conv.fp32_precision == "ieee"
    BACKENDS.fp32_precision = "ieee"
    assert BACKENDS.mkldnn.conv.fp32_precision == "ieee"


def test_the_settings_come_back_when_a_pass_fails():
    before = state()
    with pytest.raises(RuntimeError, match="no"), exact_float32():
        raise RuntimeError("no")
    assert state() == before


def test_two_models_at_once_share_the_switch():
    """The first that ends leaves it off for the other; the last restores it."""
    before = state()
    inside, go_on = threading.Event(), threading.Event()

    def other():
        with exact_float32():
            inside.set()
            go_on.wait(10)

    thread = threading.Thread(target=other)
    with exact_float32():
        thread.start()
        assert inside.wait(10)
    assert state()[0] is False
    assert set(state()[4:]) <= {"ieee"}
    go_on.set()
    thread.join()
    assert state() == before


def test_the_pass_of_a_model_runs_with_it():
    model = tiny_vit()
    seen = []
    model.module.patch_embed.proj.register_forward_hook(lambda *_: seen.append(state()))
    before = state()
    model.run(torch.zeros(1, 3, 32, 32))
    assert seen[0][0] is False
    assert set(seen[0][4:]) <= {"ieee"}
    assert state() == before


@pytest.mark.parametrize(
    ("precision", "said"),
    [("float32", "float32, no TF32"), ("bfloat16", "bfloat16"), ("float16", "float16")],
)
def test_the_record_says_which_arithmetic_ran(precision, said):
    request = ModelRequest(
        name="test_vit", random_weights=True, device="cpu", precision=Precision(precision)
    )
    assert load_backbone(request).info.arithmetic == said
    assert arithmetic_of(torch_dtype(Precision(precision))) == said


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU with TF32 is needed")
def test_patch_embeddings_on_a_gpu_are_those_of_float32():
    images = torch.randn(4, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    request = ModelRequest(name="vit_small_patch16_224", random_weights=True, device="cpu")
    exact = load_backbone(request).module.double().patch_embed(images.double())
    model = load_backbone(ModelRequest(name="vit_small_patch16_224", random_weights=True))
    module, batch = model.module.cuda(), images.cuda()
    with exact_float32():
        error = float((module.patch_embed(batch).cpu() - exact).abs().max())
    rounded = float((module.patch_embed(batch).cpu() - exact).abs().max())
    assert error < 1e-5 < rounded


@pytest.mark.parametrize("wanted", ["abacus", "cuda:99", "mps:7"])
def test_a_device_that_is_not_here_is_wrong_use(wanted):
    with pytest.raises(UsageError, match=f"--device {wanted} is not"):
        choose_device(wanted)


def test_grids_of_another_size_do_not_change_the_switch():
    model = tiny_vit()
    model.run(torch.zeros(1, 3, 48, 40))
    assert Size(*model.module.patch_embed.grid_size) == Size(4, 4)
    assert BACKENDS.cudnn.allow_tf32
