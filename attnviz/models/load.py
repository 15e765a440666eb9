"""From a request to a loaded backbone: the name, the weights, the module, and that they agree."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from attnviz.domain import ModelInfo, Positions
from attnviz.domain.register_neurons import read_neurons
from attnviz.domain.requests import ModelRequest
from attnviz.errors import CheckpointError, UsageError
from attnviz.models import build
from attnviz.models.adapt import adapted
from attnviz.models.architecture import native_size, size_of
from attnviz.models.assign import load_strictly, move
from attnviz.models.backbone import Backbone, keep_to_available_cores
from attnviz.models.catalogue import ModelSpec, stride_of
from attnviz.models.choose import Choice, Weights, choose_model, find_weights
from attnviz.models.device import arithmetic_of, choose_device, torch_dtype
from attnviz.models.head import class_head
from attnviz.models.identify import check_against
from attnviz.models.overlap import check_overlap
from attnviz.models.precision import product_type
from attnviz.models.weights.checkpoint import Checkpoint
from attnviz.models.weights.hub import repository_of
from attnviz.models.weights.inferred import Source

_BY_OFFSET = (Source.DINO, Source.DINOV2)
"""Layouts whose code resizes positions by the scale factor (n + 0.1) / M."""

ASSUMED = "nothing says how"
"""How the note on pixel statistics begins that are assumed."""


def load_backbone(request: ModelRequest) -> Backbone:
    """The model that a request names, with its weights, on its device.

    Raises:
        UsageError: A name, device or argument that does not exist, or a missing path.
        UnknownModelError: Nobody knows the name.
        UnsupportedModelError: A model whose attention cannot be shown.
        CheckpointError: The weights cannot be had or read, or do not fit the model.
    """
    choose_device(request.device)
    keep_to_available_cores()
    with build.without_bar_warning():
        backbone = assemble(request, find_weights(request))
    backbone.request = request
    return backbone


def assemble(request: ModelRequest, weights: Weights) -> Backbone:
    """The model with weights that are open already; without any it keeps its random ones.

    Raises:
        AttnvizError: As ``load_backbone``.
    """
    checkpoint = weights.checkpoint
    choice = choose_model(request, weights)
    module, notes = _build(choice, checkpoint)
    rule = _rule(request, choice.spec, checkpoint)
    info = build.read_info(module, choice.name, choice.architecture.timm_name, rule)
    _compare(info, choice.spec, request)
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
            has_cls=info.has_cls,
        )
        loaded = _load(module, checkpoint, choice)
        info = dataclasses.replace(info, pool_heads=build.pool_heads(module))
        _set_eps(module, checkpoint.inferred.eps)
        info = _described(info, choice, checkpoint, weights.origin)
        notes = (_note(info, checkpoint, loaded), *_assumed(info, checkpoint), *notes)
    size = size_of(request.args) or (choice.spec.native if choice.spec else None)
    if size is not None:
        info = dataclasses.replace(info, native_size=size)
    device = choose_device(request.device)
    module = move(module, device, torch_dtype(request.precision))
    head = None if checkpoint is None else class_head(module, checkpoint, info, device)
    info = dataclasses.replace(
        info,
        classes=0 if head is None else head.classes,
        arithmetic=arithmetic_of(product_type(module)),
    )
    offset = rule is Positions.ORIGINAL and _scales_by_offset(choice.spec, checkpoint, info)
    stride = stride_of(request.stride, info.patch)
    if stride is not None:
        check_overlap(module, info.name)
        info = dataclasses.replace(info, stride=stride)
    backbone = Backbone(module, info, offset=offset, notes=notes, head=head)
    if request.test_registers is None:
        return backbone
    neurons = read_neurons(request.test_registers)
    return backbone.with_test_registers(neurons, request.register_count or 1)


def _build(choice: Choice, checkpoint: Checkpoint | None) -> tuple[Any, tuple[str, ...]]:
    """The module, and lines on parts that were assumed where a name or config does not say them."""
    module = build.build(choice.architecture, random_weights=checkpoint is None)
    if checkpoint is None or choice.spec is not None or choice.guessed:
        return module, ()
    architecture, notes = adapted(
        module, choice.architecture, checkpoint.inferred, checkpoint.tensors
    )
    if architecture is not choice.architecture:
        module = build.build(architecture, random_weights=False)
    return module, tuple(f"{choice.name}: {note}" for note in notes)


def _load(module: nn.Module, checkpoint: Checkpoint, choice: Choice) -> int:
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
    """The requested position rule, or that of the code which the weights come with."""
    if request.positions is not None:
        return request.positions
    layout = None if checkpoint is None else checkpoint.source
    own_name = request.name is not None and repository_of(request.name) is None
    if spec is None and own_name and not (layout and layout.is_hf):
        return Positions.TIMM  # a model of timm's own, though a headless one has DINO's names
    if layout is not None and layout.positions is not None:
        return layout.positions
    return spec.positions if spec is not None else Positions.TIMM


def _scales_by_offset(
    spec: ModelSpec | None, checkpoint: Checkpoint | None, info: ModelInfo
) -> bool:
    """Whether the model's own code resizes by (n + 0.1) / M: DINO, and DINOv2 without registers."""
    if info.registers:
        return False
    return spec is not None or (checkpoint is not None and checkpoint.source in _BY_OFFSET)


def _compare(info: ModelInfo, spec: ModelSpec | None, request: ModelRequest) -> None:
    """What was built must be what the catalogue says; a difference is this program's fault."""
    if spec is None or request.args:
        return
    built = (info.patch, info.width, info.depth, info.heads, info.registers)
    stated = (spec.patch, spec.width, spec.depth, spec.heads, spec.registers)
    if built != stated:
        raise UsageError(
            f"timm builds {spec.timm_name} with patch, width, depth, heads, registers {built}, "
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


def _described(info: ModelInfo, choice: Choice, checkpoint: Checkpoint, origin: str) -> ModelInfo:
    """The description with what the weights add: where they come from, and their preprocessing."""
    name = origin
    if checkpoint.key is not None:
        name += f" ({checkpoint.key})"
    preprocessing = checkpoint.preprocessing
    info = dataclasses.replace(
        info,
        weights=name,
        weights_sha256=checkpoint.sha256,
        checkpoint_key=checkpoint.key,
        shape=choice.shape,
        statistics_assumed=preprocessing is None and choice.unnamed,
    )
    size = native_size(checkpoint.inferred)
    if choice.spec is None and size is not None:
        info = dataclasses.replace(info, native_size=size)
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
    """One line on what was loaded, the first thing to check when a map looks odd."""
    unused = len(checkpoint.unused)
    extra = f", {unused} tensors of heads or masks unused" if unused else ""
    grid = checkpoint.inferred.grid
    square = f", {grid} positions (a square is assumed)" if checkpoint.inferred.grid_assumed else ""
    return (
        f"{info.title}: patch {info.patch}, width {info.width}, {info.depth} layers, "
        f"{info.heads} heads, {info.registers} registers{square}; {loaded} of {loaded} tensors "
        f"from {info.weights} ({checkpoint.source.value} layout{extra})"
    )


def _assumed(info: ModelInfo, checkpoint: Checkpoint) -> tuple[str, ...]:
    """A line on the pixel statistics where nothing says what a model was trained with."""
    if not info.statistics_assumed:
        return ()
    mean, std = (",".join(f"{value:g}" for value in values) for values in (info.mean, info.std))
    wants = f"{ASSUMED} {checkpoint.title} wants its pixels"
    return (f"{wants}: mean {mean} and std {std} are assumed; see --mean and --std",)
