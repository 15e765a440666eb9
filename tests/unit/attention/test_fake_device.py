"""Every kind of maps on a make-believe CUDA device: tensors of two devices never meet.

torch's FakeTensorMode gives tensors a device, a shape and a number type, but no values; operations
on tensors of two devices raise, and so does handing a tensor on the device to numpy. Where Python
needs a value (``.item()``, a tensor in an ``if``), ``_Values`` answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from attnviz.attention import rollout
from attnviz.attention.capture import capture
from attnviz.attention.compute import compute
from attnviz.attention.perturb import painted
from attnviz.attention.query_keys import query_keys
from attnviz.attention.stats import distance_table
from attnviz.attention.verify import verify
from attnviz.domain import (
    Baseline,
    Box,
    Direction,
    DiscardOrder,
    DiscoverMethod,
    FigureImage,
    FitGeometry,
    Fusion,
    Query,
    RelevanceMethod,
    RolloutOptions,
    Size,
)
from attnviz.domain.kinds import (
    KINDS,
    DiscoverRequest,
    FaithfulRequest,
    FeaturesRequest,
    HeadsRequest,
    LayersRequest,
    MatchRequest,
    MatrixRequest,
    PatchRequest,
    QkvRequest,
    RelevanceRequest,
    RolloutRequest,
    ScoreRequest,
    kind_of,
)
from attnviz.domain.options import resolve
from attnviz.models.head import ClassHead, Part
from attnviz.models.precision import cast
from tests.helpers.planted import backbone_of, tiny_vit
from tests.helpers.versions import older_than

IMAGES = 2
GEOMETRY = FitGeometry(Size(24, 40), Size(24, 40), 8, Box(0, 0, 24, 40))
PICTURE = FigureImage(np.zeros((24, 40, 3), np.uint8), GEOMETRY, "second.png")
LIKE = Path("second.png")
PAPER = RolloutOptions(discard_ratio=0)
HEADS = (1, 0)

REQUESTS = {
    "heads": HeadsRequest(heads=HEADS),
    "heads, no distance": HeadsRequest(distance=False),
    "heads of the mean query": HeadsRequest(query=Query.MEAN),
    "layers": LayersRequest(layers=(0, 1)),
    "layers, no distance": LayersRequest(distance=False),
    "layers of the mean query": LayersRequest(query=Query.MEAN, distance=False),
    "rollout": RolloutRequest(heads=HEADS),
    "rollout, no discard": RolloutRequest(options=PAPER),
    "rollout, discard before": RolloutRequest(
        options=RolloutOptions(discard=DiscardOrder.BEFORE, fusion=Fusion.MAX)
    ),
    "rollout of one head's minima": RolloutRequest(
        options=replace(PAPER, fusion=Fusion.MIN, start_layer=1), heads=(1,)
    ),
    "rollout at depths": RolloutRequest(depths=(0,)),
    "rollout of the mean query": RolloutRequest(query=Query.MEAN, options=PAPER),
    "patch": PatchRequest(cells=((0, 1), (2, 4)), heads=HEADS),
    "patch, to": PatchRequest(cells=((0, 1), (2, 4)), direction=Direction.TO),
    "heads of a register": HeadsRequest(query=Query("r2")),
    "layers, sinks": LayersRequest(sinks=True),
    "rollout of a register": RolloutRequest(query=Query("r1"), options=PAPER),
    "score": ScoreRequest(heads=HEADS),
    "score with low-frequency energy": ScoreRequest(lfe=True),
    "pruning run": ScoreRequest(lfe=True, layers="all"),
    "matrix": MatrixRequest(),
    "matrix, whole": MatrixRequest(heads=HEADS, whole=True),
    "qkv": QkvRequest(heads=HEADS),
    "features": FeaturesRequest(),
    "features of a layer, foreground": FeaturesRequest(layer=1, foreground=True),
    **{f"discover by {method}": DiscoverRequest(method) for method in DiscoverMethod},
    "match": MatchRequest(LIKE),
    "match of tokens": MatchRequest(LIKE, part="tokens", cells=((0, 1),)),
    "faithful": FaithfulRequest(
        show=("mean", "head:1", "rollout", "relevance", "score", "contribution", "random"),
        chefer=True,
    ),
    "faithful to a class": FaithfulRequest(
        show=("relevance", "contribution"), class_index=1, chefer=True
    ),
    **{
        f"relevance to an image by {method}": RelevanceRequest(like=LIKE, method=method)
        for method in RelevanceMethod
    },
    **{
        f"relevance to a class by {method}": RelevanceRequest(
            class_index=1, method=method, heads=HEADS
        )
        for method in RelevanceMethod
    },
}


class _Values(TorchDispatchMode):
    """Values for Python: 0, and True where a tensor decides an ``if``."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default):
            if args[0].dtype is torch.bool:
                return True
            return 0.0 if args[0].dtype.is_floating_point else 0
        if func is torch.ops.aten.is_nonzero.default:
            return True
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _device_without_a_driver(monkeypatch) -> Iterator[None]:
    """Arrays of fake tensors on the CPU alone; gradients on the device of what they are of.

    Autograd's engine asks the driver for the device. A backward pass runs where its forward pass
    did, so nothing that could meet another device is left out.
    """
    # A cached table of another test would be real here, and one of this test fake elsewhere.
    distance_table.cache_clear()
    real = torch.Tensor.numpy

    def numpy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return real(tensor, *args, **kwargs)
        if tensor.device.type != "cpu":
            raise TypeError(f"numpy() of a tensor on {tensor.device}")
        return np.full(tuple(tensor.shape), 0.5, str(tensor.dtype).removeprefix("torch."))

    def grad(target: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        assert target.requires_grad
        return [torch.zeros_like(tensor) for tensor in inputs]

    monkeypatch.setattr(torch.Tensor, "numpy", numpy)
    monkeypatch.setattr(torch.autograd, "grad", grad)
    # Single values are kept as constants, and moved to the real device.
    monkeypatch.setattr(fake_tensor, "CONSTANT_NUMEL_LIMIT", 0)
    # Autocast is left off, with a warning, where there is no driver.
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    distance_table.cache_clear()  # a fake table must not be left for other tests
    yield
    distance_table.cache_clear()


MODE = FakeTensorMode(allow_non_fake_inputs=True)


def asks_the_driver():
    """Whether this torch wants a real CUDA for make-believe tensors on it."""
    try:
        with MODE:
            MODE.from_tensor(torch.zeros(1)).to("cuda")
    except RuntimeError:
        return True
    return False


pytestmark = pytest.mark.skipif(
    older_than("torch", "2.14") and asks_the_driver(), reason="torch asks for a CUDA driver"
)


@cache
def on_cuda(precision=torch.float32, *, masked=False):
    """A tiny ViT with registers and a classifier, on the make-believe device."""
    module = tiny_vit(registers=2, depth=2).module
    cast(module, precision)
    if masked:
        for block in module.blocks:
            block.attn.register_forward_pre_hook(add_mask, with_kwargs=True)
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            held.update({name: to_cuda(held[name]) for name in held if held[name] is not None})
    backbone = backbone_of(module, registers=2)
    weight, bias = to_cuda(torch.zeros(5, module.embed_dim)), to_cuda(torch.zeros(5))
    backbone.head = ClassHead((Part(slice(0, 1), weight),), bias, torch.nn.Identity())
    backbone.info = replace(backbone.info, classes=5)
    return backbone


def to_cuda(tensor):
    with MODE:
        fake = MODE.from_tensor(tensor.detach()).to("cuda")
        return torch.nn.Parameter(fake, False) if isinstance(tensor, torch.nn.Parameter) else fake


def add_mask(_module, inputs, options):
    """A mask for the attention of a block, as a model makes it: on the device of its tokens."""
    tokens = inputs[0].shape[1]
    mask = torch.zeros(tokens, tokens, device=inputs[0].device)
    return inputs, options | {"attn_mask": mask}


def batch_of_two():
    return to_cuda(torch.zeros(IMAGES, 3, 24, 40))


def computed(model, request):
    batch, reference = batch_of_two(), None
    with MODE, _Values():
        if request.second_image is not None:
            refer = resolve(kind_of(request).refer)
            reference = refer(model, batch[:1], PICTURE, request)
        return compute(model, batch, [GEOMETRY] * IMAGES, request, reference)


def test_every_kind_is_here():
    assert {type(request) for request in REQUESTS.values()} == {
        kind.request for kind in KINDS.values()
    }


@pytest.mark.parametrize("name", list(REQUESTS))
def test_every_kind_stays_on_the_device(name):
    assert len(computed(on_cuda(), REQUESTS[name])) == IMAGES


@pytest.mark.parametrize("name", list(REQUESTS))
def test_every_kind_stays_on_the_device_in_bfloat16_and_under_a_mask(name):
    masked = name != "pruning run"  # which is refused where positions have biases
    assert len(computed(on_cuda(torch.bfloat16, masked=masked), REQUESTS[name])) == IMAGES


@pytest.mark.parametrize("name", [name for name in REQUESTS if name.startswith("rollout")])
def test_rollout_makes_its_matrices_again_on_the_device(name, monkeypatch):
    monkeypatch.setattr(rollout, "KEEP_LIMIT_BYTES", 0)
    assert len(computed(on_cuda(), REQUESTS[name])) == IMAGES


@pytest.mark.parametrize("baseline", Baseline)
def test_what_hides_cells_is_made_on_the_device(baseline):
    with MODE, _Values():
        made = painted(batch_of_two()[0], baseline, (-1.0, -1.0, -1.0))
    assert (made.shape, made.device.type) == ((3, 24, 40), "cuda")


def test_the_check_of_all_blocks_stays_on_the_device():
    with MODE, _Values():
        assert verify(on_cuda(), batch_of_two()) == (0.0, 0.0)


def test_queries_and_keys_of_an_explorer_page_stay_on_the_device():
    with MODE, _Values():
        assert query_keys(on_cuda(), batch_of_two()[:1]).query.shape == (2, 2, 18, 16)


@pytest.mark.parametrize(
    "misplace",
    [
        lambda call: call.fused() + torch.zeros(call.query.shape),
        lambda call: call.query[:, torch.arange(2)] + torch.ones(1).expand(call.query.shape),
        lambda call: call.query.numpy(),
    ],
)
def test_a_tensor_on_the_wrong_device_is_noticed(misplace):
    """The check itself: what is misplaced in a pass raises."""
    with (
        MODE,
        _Values(),
        pytest.raises((RuntimeError, TypeError), match=r"at least two devices|on cuda"),
    ):
        capture(on_cuda(), batch_of_two(), 1, misplace)
