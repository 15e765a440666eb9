"""From a request to a loaded backbone: the name, the weights, the module, and that they agree."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from torch import nn

from attnviz.domain import DEFAULT_MODEL, ModelInfo, Positions, Size
from attnviz.domain.requests import ModelRequest
from attnviz.errors import CheckpointError, UnsupportedModelError, UsageError
from attnviz.models import backbone
from attnviz.models.architecture import (
    Architecture,
    from_inferred,
    native_size,
    stored_grid,
    timm_arguments,
)
from attnviz.models.assign import load_strictly, move
from attnviz.models.backbone import Backbone
from attnviz.models.catalogue import ModelSpec, find_spec, packaged_weights, unknown_model
from attnviz.models.head import class_head
from attnviz.models.identify import check_against, identify
from attnviz.models.weights.checkpoint import Checkpoint, open_checkpoint
from attnviz.models.weights.hub import fetch_weights
from attnviz.models.weights.inferred import Source

FAMILIES = ("vision_transformer", "eva", "deit")
"""timm's modules of plain ViTs: one softmax attention a block over all tokens of the picture."""

_WITH_OFFSET = (Source.DINO, Source.DINOV2)
_SUPERVISED_TOO = (Source.TIMM, Source.HF_VIT, Source.HF_DEIT)


@dataclass(frozen=True)
class _Choice:
    """What to load: the name that figures show, the catalogue row if any, and what to build.

    ``guessed``: nobody named the model, it is built from the shapes of the weights alone.
    """

    name: str
    spec: ModelSpec | None
    architecture: Architecture
    guessed: bool = False


def load_backbone(request: ModelRequest) -> Backbone:
    """The model that a request names, with its weights, on its device.

    Raises:
        UsageError: A name, device or argument that does not exist, or a missing path.
        UnknownModelError: Nobody knows the name.
        UnsupportedModelError: A model that is no plain ViT.
        CheckpointError: The weights cannot be had or read, or do not fit the model.
    """
    backbone.choose_device(request.device)
    backbone.keep_to_available_cores()
    spec = _named_spec(request)
    return assemble(request, spec, _weights(request, spec))


def assemble(
    request: ModelRequest, spec: ModelSpec | None, checkpoint: Checkpoint | None
) -> Backbone:
    """The model with weights that are open already; without any it keeps its random ones.

    Raises:
        AttnvizError: As ``load_backbone``.
    """
    choice = _choose(request, spec, checkpoint)
    module = backbone.build(choice.architecture, random_weights=checkpoint is None)
    rule = _rule(request, choice.spec, checkpoint)
    info = backbone.read_info(module, choice.name, choice.architecture.timm_name, rule)
    _compare(info, choice.spec, request)
    notes: tuple[str, ...] = ()
    if checkpoint is None:
        info = dataclasses.replace(info, weights="random weights", random_weights=True)
    else:
        check_against(
            checkpoint,
            name=choice.name,
            patch=info.patch,
            width=info.width,
            depth=info.depth,
            heads=info.heads,
            registers=info.registers,
        )
        loaded = _load(module, checkpoint, choice)
        _set_eps(module, checkpoint.inferred.eps)
        info = _described(info, choice, checkpoint, hub=request.checkpoint is None)
        notes = (_note(info, checkpoint, loaded), *_assumed(info, choice, checkpoint))
    if choice.spec is not None or "size" in request.args:
        size = request.args.get("size") or (choice.spec.native_size if choice.spec else 0)
        info = dataclasses.replace(info, native_size=Size(size, size))
    device = backbone.choose_device(request.device)
    module = move(module, device, backbone.torch_dtype(request.precision))
    head = None if checkpoint is None else class_head(module, checkpoint, info, device)
    info = dataclasses.replace(info, classes=0 if head is None else head.classes)
    offset = rule is Positions.ORIGINAL and _scales_by_offset(choice.spec, checkpoint, info)
    return Backbone(module, info, offset=offset, notes=notes, head=head)


def _named_spec(request: ModelRequest) -> ModelSpec | None:
    """The catalogue row of the requested name; refuses names and families that cannot be shown."""
    name = request.name
    if name is None:
        return None if request.checkpoint is not None else find_spec(DEFAULT_MODEL)
    spec = find_spec(name)
    if spec is None:
        family = backbone.find_family(name)
        if family is None:
            raise unknown_model(name, backbone.known_names())
        if family not in FAMILIES:
            raise UnsupportedModelError(
                f"{name} is no plain Vision Transformer (timm's {family})",
                "supported are DINO, DINOv2, DINOv3 (`attnviz models`) and timm's ViT, DeiT, "
                "CLIP, SigLIP and EVA models",
            )
    return spec


def _weights(request: ModelRequest, spec: ModelSpec | None) -> Checkpoint | None:
    """The opened weights; None for random ones."""
    if request.random_weights:
        return None
    if request.checkpoint is not None:
        return open_checkpoint(request.checkpoint, request.checkpoint_key)
    if spec is not None and spec.packaged:
        return open_checkpoint(packaged_weights(spec))
    if spec is not None:
        return open_checkpoint(fetch_weights(spec.name, spec.repository))
    assert request.name is not None
    repository = backbone.hub_repository(request.name)
    if repository is None:
        raise CheckpointError(
            f"{request.name} has no pretrained weights",
            "give a file with --checkpoint FILE, or --random-weights",
        )
    return open_checkpoint(fetch_weights(request.name, *repository))


def _choose(
    request: ModelRequest, spec: ModelSpec | None, checkpoint: Checkpoint | None
) -> _Choice:
    own = _own_sizes(request, spec, checkpoint)
    if request.name is None and spec is None:
        assert checkpoint is not None
        spec = identify(checkpoint)
        if spec is None and checkpoint.timm_name is None:
            name = checkpoint.path.stem if checkpoint.path.is_file() else checkpoint.path.name
            architecture = from_inferred(
                checkpoint.inferred, request.args, dino=checkpoint.source is Source.DINO
            )
            architecture.arguments.update(own)
            return _Choice(name, None, architecture, guessed=True)
    if spec is not None:
        name, timm_name = spec.name, spec.timm_name
    elif request.name is not None:
        name = timm_name = request.name
    else:
        assert checkpoint is not None
        assert checkpoint.timm_name is not None
        name = timm_name = checkpoint.timm_name
        family = backbone.find_family(timm_name)
        if family not in FAMILIES:
            raise UnsupportedModelError(f"{checkpoint.path}: {timm_name} is no plain ViT")
    arguments: dict[str, Any] = {}
    if spec is not None and spec.packaged:
        sizes = {"width": spec.width, "depth": spec.depth, "heads": spec.heads}
        arguments |= timm_arguments(sizes | {"patch": spec.patch, "size": spec.native_size})
    if checkpoint is not None:
        arguments |= stored_grid(checkpoint.inferred)
        if checkpoint.inferred.rotary and checkpoint.inferred.qkv_bias:
            arguments["qkv_bias"] = True  # timm's DINOv3 leaves them out, as Meta's are all zero
    return _Choice(name, spec, Architecture(timm_name, arguments | own))


def _own_sizes(
    request: ModelRequest, spec: ModelSpec | None, checkpoint: Checkpoint | None
) -> dict[str, Any]:
    """The sizes of ``--model-arg`` in timm's words."""
    size = request.args.get("size")
    if checkpoint is not None and size is not None:
        stored = native_size(checkpoint.inferred)
        if stored is not None and stored != (size, size):
            raise UsageError(
                f"--model-arg size={size}: {checkpoint.path} has positions for {stored} pixels",
                "they are resized for each picture; give the input size with --size",
            )
    if spec is not None or request.name is None:
        rotary = spec.rotary if spec is not None else checkpoint and checkpoint.inferred.rotary
        return timm_arguments(request.args, eva=bool(rotary))
    return timm_arguments(request.args, eva=backbone.find_family(request.name) == "eva")


def _load(module: nn.Module, checkpoint: Checkpoint, choice: _Choice) -> int:
    """All of the backbone, or none; the number of tensors."""
    try:
        return load_strictly(module, checkpoint)
    except CheckpointError as error:
        if not choice.guessed:
            raise
        raise CheckpointError(
            error.message, "shapes alone do not say what this model is; name it with --model"
        ) from error


def _rule(
    request: ModelRequest, spec: ModelSpec | None, checkpoint: Checkpoint | None
) -> Positions:
    """The asked position rule, or that of the code which the weights come with."""
    if request.positions is not None:
        return request.positions
    if request.name is not None and spec is None and not (checkpoint and checkpoint.source.is_hf):
        return Positions.TIMM  # a model of timm's own, though a headless one has DINO's names
    if checkpoint is not None and checkpoint.source.positions is not None:
        return checkpoint.source.positions
    return spec.positions if spec is not None else Positions.TIMM


def _scales_by_offset(
    spec: ModelSpec | None, checkpoint: Checkpoint | None, info: ModelInfo
) -> bool:
    """Whether the model's own code resizes by (n + 0.1) / M: DINO, and DINOv2 without registers."""
    if info.registers:
        return False
    return spec is not None or (checkpoint is not None and checkpoint.source in _WITH_OFFSET)


def _compare(info: ModelInfo, spec: ModelSpec | None, request: ModelRequest) -> None:
    """What was built must be what the catalogue says; a difference is this program's fault."""
    if spec is None or request.args:
        return
    inferred = (info.patch, info.width, info.depth, info.heads, info.registers)
    stated = (spec.patch, spec.width, spec.depth, spec.heads, spec.registers)
    if inferred != stated:
        raise UsageError(
            f"timm builds {spec.timm_name} with patch, width, depth, heads, registers {inferred}, "
            f"expected {stated}",
            "this version of timm differs from the tested one; see constraints.txt",
        )


def _set_eps(module: nn.Module, eps: float | None) -> None:
    """Give every layer norm the epsilon that a config states; timm's own differs from HF's."""
    if eps is None:
        return
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = eps


def _described(info: ModelInfo, choice: _Choice, checkpoint: Checkpoint, *, hub: bool) -> ModelInfo:
    """The description with what the weights add: where they come from, and their preprocessing."""
    packaged = choice.spec is not None and choice.spec.packaged
    name = checkpoint.path.name
    if hub and not packaged:
        name = f"timm/{choice.architecture.timm_name}"
    if checkpoint.key is not None:
        name += f" ({checkpoint.key})"
    info = dataclasses.replace(info, weights=name, weights_sha256=checkpoint.sha256)
    size = native_size(checkpoint.inferred)
    if choice.spec is None and size is not None:
        info = dataclasses.replace(info, native_size=size)
    preprocessing = checkpoint.preprocessing
    if preprocessing is None:
        return info
    if choice.spec is None and preprocessing.size is not None:
        info = dataclasses.replace(info, native_size=preprocessing.size)
    return dataclasses.replace(
        info,
        mean=preprocessing.mean,
        std=preprocessing.std,
        interpolation=preprocessing.interpolation,
    )


def _note(info: ModelInfo, checkpoint: Checkpoint, loaded: int) -> str:
    """One line on what was loaded: case by case the first thing to look at when a map looks odd."""
    left = len(checkpoint.ignored)
    extra = f", {left} of heads or masks left over" if left else ""
    return (
        f"{info.name}: patch {info.patch}, width {info.width}, {info.depth} layers, "
        f"{info.heads} heads, {info.registers} registers; {loaded} of {loaded} tensors from "
        f"{info.weights} ({checkpoint.source.value} layout{extra})"
    )


def _assumed(info: ModelInfo, choice: _Choice, checkpoint: Checkpoint) -> tuple[str, ...]:
    """A line on the pixel statistics where nothing says what a model was trained with."""
    known = checkpoint.preprocessing is not None or checkpoint.source not in _SUPERVISED_TOO
    if known or not choice.guessed:
        return ()
    mean, std = (",".join(f"{value:g}" for value in values) for values in (info.mean, info.std))
    told = f"nothing says how {info.name} wants its pixels: mean {mean} and std {std} are assumed"
    return (f"{told}; see --mean and --std",)
