"""A snapshot of a live module, as a backbone of its own that its owner never notices.

The live model is only read: it is not run, hooked, switched to evaluation mode or moved. Its
snapshot is another module whose parameters are views of the live ones, so it costs no second set of
weights where these are float32. A model of timm's code is copied module by module. Any other (the
code of DINO and DINOv2, transformers) becomes timm's model of its layout, as its checkpoint would;
what names and shapes do not tell (heads, norm epsilon, activation, scale) is read from the live
modules, and refused where timm's model computes something else.
"""

from __future__ import annotations

import copy
import logging
import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.domain import Positions, Size
from attnviz.domain.requests import ModelRequest
from attnviz.errors import UnsupportedModelError, UsageError
from attnviz.models import build
from attnviz.models.adapters import HOOKS, merged_layers, with_merged
from attnviz.models.assign import move
from attnviz.models.backbone import Backbone
from attnviz.models.build import FAMILIES
from attnviz.models.choose import Weights
from attnviz.models.load import assemble
from attnviz.models.weights import hf_config, huggingface
from attnviz.models.weights.checkpoint import Checkpoint, convert_original, infer_original
from attnviz.models.weights.networks import plain_name, preferred

_IMAGENET: dict[str, Any] = {
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "interpolation": "bicubic",
}
"""How pixels are prepared where the model does not say it."""

_TIMM = frozenset(f"timm.models.{family}" for family in FAMILIES)
_SCALE_TOLERANCE = 1e-6


def snapshot_backbone(model: nn.Module, name: str | None = None) -> Backbone:
    """The Vision Transformer inside ``model`` as it is now, in evaluation mode and float32.

    ``name``: what figures call it; by default the name of its class. Valid until the live weights
    change. Call this, and run the snapshot, inside ``undisturbed``.

    Raises:
        UsageError: The model holds no Vision Transformer, or several.
        UnsupportedModelError: Its attention cannot be shown exactly.
        CheckpointError: Its tensors are not those of a known layout.
    """
    live = find_backbone(model)
    name = name or type(live).__name__
    if any(hasattr(parameter, "full_tensor") for parameter in live.parameters()):
        raise UsageError(
            f"the parameters of {name} are spread over processes",
            "gather them into a model of one process and give that",
        )
    if not is_timms(live) and (family := _other_family(live)):
        raise UnsupportedModelError(
            f"{name} is not supported (timm's {family})",
            "supported are timm's ViT, DeiT, BEiT, CLIP, SigLIP and EVA models, whose blocks "
            "attend once over all tokens of the image",
        )
    merged = merged_layers(live)
    snapshot = _copied(live, name, merged) if is_timms(live) else _rebuilt(live, name, merged)
    if merged:
        snapshot.notes = (*snapshot.notes, f"{name}: adapters merged in {len(merged)} layers")
    return snapshot


def is_timms(live: nn.Module) -> bool:
    """Whether the module runs timm's own code, so that a copy of it is what is shown."""
    return any(base.__module__ in _TIMM for base in type(live).__mro__)


def _other_family(live: nn.Module) -> str:
    """The module of timm that a class is from; empty for code of others."""
    module = type(live).__module__
    return module.removeprefix("timm.models.") if module.startswith("timm.models.") else ""


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Random states, autocast and log levels are afterwards what they were."""
    states, logger = (random.getstate(), np.random.get_state()), logging.getLogger("timm")  # noqa: NPY002
    level = logger.level
    cuda = range(torch.cuda.device_count()) if _cuda_is_used() else ()
    with (
        torch.random.fork_rng(devices=cuda),
        torch.autocast(_device_of(model).type, enabled=False),
    ):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
            logger.setLevel(level)


def is_first_process() -> bool:
    """Whether this is the process that draws: the only one, or the one of rank 0."""
    distributed = torch.distributed
    started = distributed.is_available() and distributed.is_initialized()
    return not started or distributed.get_rank() == 0


def find_backbone(model: nn.Module) -> nn.Module:
    """The Vision Transformer in a model, whatever wraps it; of teacher and student, the teacher.

    Raises:
        UsageError: None or several.
    """
    backbones: dict[str, nn.Module] = {}
    for name, part in model.named_modules():
        root = f"{name}." if name else ""
        if _is_vit(part) and not any(root.startswith(outer) for outer in backbones):
            backbones[root] = part
    chosen = preferred(list(backbones))
    if not chosen:
        raise UsageError(
            f"{type(model).__name__} has no known layout of a Vision Transformer",
            "known are patch_embed and blocks as in timm, DINO and DINOv2, embeddings as in "
            "transformers, and torchvision's VisionTransformer",
        )
    if len(chosen) > 1:
        names = ", ".join(root.removesuffix(".") for root in chosen)
        raise UsageError(
            f"{type(model).__name__} holds {len(chosen)} Vision Transformers: {names}",
            "give one of them",
        )
    return _plain(backbones[chosen[0]])


def _plain(part: nn.Module) -> nn.Module:
    """What a compiled module was made of; any other module itself."""
    return getattr(part, "_orig_mod", part)


def _is_vit(part: nn.Module) -> bool:
    # Its own parts: wrappers of peft and of the compiler answer for what is inside them as well.
    own = part._modules  # noqa: SLF001
    original = hasattr(own.get("patch_embed"), "proj") and "blocks" in own
    torchvision = "conv_proj" in own and "encoder" in own
    embeddings = own.get("embeddings")
    hf = any(hasattr(embeddings, name) for name in ("patch_embeddings", "patch_embedding"))
    return original or torchvision or hf


def _cuda_is_used() -> bool:
    used: Any = torch.cuda.is_initialized
    return bool(used())


def _device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _copied(live: Any, name: str, merged: Mapping[str, nn.Module]) -> Backbone:
    """The same modules once more, without their hooks, around views of the same parameters."""
    if live.patch_embed.proj.weight.shape[1] != 3:
        raise UnsupportedModelError(f"{name} does not take images of 3 channels")
    snapshot: Any = copied(live, merged)
    snapshot = snapshot.eval().requires_grad_(requires_grad=False)
    if hasattr(snapshot, "grad_checkpointing"):
        snapshot.grad_checkpointing = False
    _take_any_size(snapshot)
    given = getattr(snapshot, "pretrained_cfg", None) or {}
    size = snapshot.patch_embed.img_size or given["input_size"][1:]
    snapshot.pretrained_cfg = _IMAGENET | dict(given) | {"input_size": (3, *size)}
    info = build.read_info(snapshot, name, type(live).__name__, Positions.TIMM)
    info = replace(info, statistics_assumed="mean" not in given)
    snapshot = move(snapshot, _device_of(live), torch.float32)
    return Backbone(snapshot, info, offset=False)


def copied(live: nn.Module, merged: Mapping[str, nn.Module]) -> nn.Module:
    """The module once more, around views of the same tensors, without hooks and adapters."""
    return copy.deepcopy(live, _known(live, merged))


def _known(live: nn.Module, merged: Mapping[str, nn.Module]) -> dict[int, Any]:
    """What a deep copy shall take for things it meets: views of tensors, and no hooks."""
    memo: dict[int, Any] = {id(live.get_submodule(name)): merged[name] for name in merged}
    for part in live.modules():
        for parameter in part._parameters.values():  # noqa: SLF001
            if parameter is not None:
                memo[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
        for value in (*part._buffers.values(), *vars(part).values()):  # noqa: SLF001
            if isinstance(value, Tensor):
                memo[id(value)] = value.detach()
        for attribute, value in vars(part).items():
            if attribute.endswith(HOOKS):
                memo[id(value)] = OrderedDict()
    # A compiled part stands for the one that it was made of.
    for part in reversed(list(live.modules())):
        if (plain := _plain(part)) is not part:
            memo[id(part)] = copy.deepcopy(plain, memo)
    return memo


def _take_any_size(snapshot: Any) -> None:
    """What timm's ``dynamic_img_size`` switches when a model is built."""
    embed = snapshot.patch_embed
    embed.strict_img_size = False
    if not getattr(snapshot, "dynamic_img_size", True):
        snapshot.dynamic_img_size, embed.flatten = True, False
        embed.output_fmt = type(embed.output_fmt)("NHWC")


def _rebuilt(live: nn.Module, name: str, merged: Mapping[str, nn.Module]) -> Backbone:
    """A model of timm's, of the layout that the live tensors are named after."""
    path = Path(name)
    stored = with_merged(live.state_dict(), merged)
    tensors = {plain_name(name): tensor for name, tensor in stored.items()}
    if huggingface.is_layout(tensors):
        config = _config_of(live)
        source = hf_config.source_of(config, path)
        tensors, unused = huggingface.convert(tensors, source, path)
        inferred = hf_config.infer_from_config(config, tensors, path)
    else:
        source, tensors, unused = convert_original(tensors, path)
        inferred = infer_original(tensors, source, path, sizes=_sizes(live))
        inferred = replace(inferred, **_settings(live, name, inferred.width))
    checkpoint = Checkpoint(
        path, (), name, None, source, tensors, inferred, None, None, unused, None
    )
    request = ModelRequest(checkpoint=path, device=str(_device_of(live)))
    snapshot = assemble(request, Weights(checkpoint=checkpoint, origin="a module in memory"))
    snapshot.head = None  # as of timm's models: a classifier in training is not shown
    snapshot.info = replace(snapshot.info, name=name, shape="", classes=0)
    return snapshot


def _config_of(live: Any) -> dict[str, Any]:
    config: dict[str, Any] = live.config.to_dict()
    return config


def _sizes(live: Any) -> list[Size]:
    """The input size that the live patch embedding was made for, where it says so."""
    torchvisions = getattr(live, "image_size", None)
    size = getattr(getattr(live, "patch_embed", None), "img_size", torchvisions)
    if isinstance(size, int):
        size = (size, size)
    return [Size(*size)] if isinstance(size, tuple | list) and len(size) == 2 else []


def _settings(live: nn.Module, name: str, width: int) -> dict[str, Any]:
    """Heads and norm epsilon of the live modules, after a look at what else shapes do not tell."""
    parts = [part for block in _blocks(live) for part in block.modules()]
    attending = [part for part in parts if isinstance(getattr(part, "num_heads", None), int)]
    heads = _only(name, "number of heads", (part.num_heads for part in attending))
    eps = _only(
        name, "norm epsilon", (p.eps for p in live.modules() if isinstance(p, nn.LayerNorm))
    )
    for part in attending:
        scale = getattr(part, "scale", None)
        if isinstance(scale, float) and abs(scale - (width / heads) ** -0.5) > _SCALE_TOLERANCE:
            raise UnsupportedModelError(f"{name} scales its attention by {scale:g}, not d^-0.5")
    for part in parts:
        act = part if isinstance(part, _ACTIVATIONS) else getattr(part, "act", None)
        if act is not None and not (isinstance(act, nn.GELU) and act.approximate == "none"):
            raise UnsupportedModelError(
                f"{name} has {type(act).__name__} between its layers, not GELU",
                "timm's model of this layout has GELU, so its attention would be another",
            )
    return {"heads": heads, "eps": eps}


_ACTIVATIONS = (nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh)


def _blocks(live: Any) -> list[nn.Module]:
    blocks = getattr(live, "blocks", None)
    return list(live.encoder.layers if blocks is None else blocks)


def _only(name: str, what: str, values: Iterable[Any]) -> Any:
    different = sorted(set(values))
    if len(different) != 1:
        raise UnsupportedModelError(f"{name} has no single {what} ({different or 'none'})")
    return different[0]
