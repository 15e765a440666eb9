"""A module of the user's own as a backbone: timm's, transformers', or the code of DINO.

The snapshot of ``attnviz.models.training``, with weights of its own, and compared with the module's
own code before anything is drawn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.domain import ModelInfo, Size
from attnviz.errors import UnsupportedModelError, UsageError
from attnviz.models.adapters import merged_layers
from attnviz.models.backbone import Backbone
from attnviz.models.load import ASSUMED
from attnviz.models.training import copied, find_backbone, is_timms, snapshot_backbone, undisturbed
from attnviz.models.weights.preprocessor import preprocessing_from, three

TOLERANCE = 1e-3
"""Largest deviation of the last layer's output, relative to its largest value, in float32."""


def wrap(
    module: nn.Module,
    *,
    name: str | None = None,
    processor: Any = None,
    mean: tuple[float, float, float] | None = None,
    std: tuple[float, float, float] | None = None,
    verify: bool = True,
) -> Backbone:
    """The Vision Transformer inside a module, as it is now, in evaluation mode and float32.

    Args:
        module: The module; it is not run, moved, switched or changed.
        name: What figures call it; by default the name of its class.
        processor: The image processor of transformers that prepares its images.
        mean: Mean of the pixel normalisation, for pixels from 0 to 1.
        std: Standard deviation of the pixel normalisation.
        verify: Compare the output of the last layer with that of a copy of the module.

    Raises:
        UsageError: The module holds no Vision Transformer, or several; or half of the statistics.
        UnsupportedModelError: Its attention cannot be shown exactly.
        CheckpointError: Its tensors are not those of a known layout.
    """
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"an object of type {type(module).__name__} is not a module of torch",
            "attnviz.load_model takes names and files",
        )
    with undisturbed(module), torch.no_grad():
        backbone = snapshot_backbone(module, name)
        _own_weights(backbone.module)
        notes = [note for note in backbone.notes if not note.startswith(ASSUMED)]
        notes.append(f"{backbone.info.name}: weights as they were when it was wrapped")
        if verify:
            notes += compared(module, backbone)
    weights = "a module in memory"
    if any("adapters merged" in note for note in backbone.notes):
        weights += ", adapters merged"
    info = replace(backbone.info, weights=weights, in_memory=True)
    info = backbone.info = _prepared_by(info, processor, mean, std)
    if info.statistics_assumed:
        means, stds = (",".join(f"{value:g}" for value in each) for each in (info.mean, info.std))
        notes.append(
            f"{ASSUMED} {info.name} wants its pixels: mean {means} and std {stds} are assumed; "
            "give processor, or mean and std"
        )
    backbone.notes = tuple(notes)
    return backbone


def _prepared_by(
    info: ModelInfo,
    processor: Any,
    mean: tuple[float, float, float] | None,
    std: tuple[float, float, float] | None,
) -> ModelInfo:
    """The description with what is said of how images are prepared."""
    if (mean is None) != (std is None):
        raise UsageError("mean and std belong together", "give both, or neither")
    if mean is not None and std is not None:
        if processor is not None:
            raise UsageError("processor says mean and std too", "give one of the two")
        return replace(info, mean=three(mean), std=three(std), statistics_assumed=False)
    if processor is None:
        return info
    settings = getattr(processor, "image_processor", processor).to_dict()
    said = preprocessing_from(settings, type(processor).__name__)
    return replace(
        info,
        mean=said.mean,
        std=said.std,
        interpolation=said.interpolation,
        native_size=said.size or info.native_size,
        statistics_assumed=False,
    )


def _own_weights(module: nn.Module) -> None:
    """Copies in place of views: what the module's owner does to its weights later is not seen."""
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = tensor.data.clone()


def compared(module: nn.Module, backbone: Backbone) -> tuple[str, ...]:
    """Run a copy of the module and its snapshot on one input; returns notes for the user.

    A snapshot of timm's modules is such a copy already: there is nothing to compare. Call this
    inside ``undisturbed``.

    Raises:
        UnsupportedModelError: The outputs of their last layers differ, or cannot be had.
    """
    live, name = find_backbone(module), backbone.info.name
    if is_timms(live):
        return ()
    if getattr(getattr(live, "config", None), "mask_ratio", 0):
        return (f"{name}: not compared with its own code, which masks patches at random",)
    batch = _pattern(backbone.info.native_size, backbone.device)
    try:
        own = copied(live, merged_layers(live)).eval().requires_grad_(requires_grad=False).float()
        last = _last_block(own, backbone.info.depth)
        theirs = _output_of(last, lambda: own(batch))
    except UnsupportedModelError:
        raise
    except Exception as error:
        raise UnsupportedModelError(
            f"a copy of {name} does not run on an input of {backbone.info.native_size}: {error}",
            "verify=False leaves the comparison out",
        ) from error
    ours = _output_of(backbone.blocks[-1], lambda: backbone.run(batch))
    if theirs.shape != ours.shape:
        raise UnsupportedModelError(
            f"{name} has {tuple(theirs.shape)} tokens after its last layer, and timm's model of "
            f"its layout {tuple(ours.shape)}"
        )
    deviation = float((theirs - ours).abs().max() / theirs.abs().max())
    if not deviation <= TOLERANCE:
        raise UnsupportedModelError(
            f"{name} computes something else than timm's model of its layout: the output of its "
            f"last layer deviates by {deviation:.2g} of its largest value",
            "a changed activation, scale or forward method cannot be shown exactly",
        )
    return (f"{name}: compared with its own code, deviation after the last layer {deviation:.1g}",)


def _pattern(size: Size, device: torch.device) -> Tensor:
    """An input (1, 3, h, w) of that size, from -2 to 2 and without symmetry."""
    values = torch.arange(3 * size.height * size.width, dtype=torch.float64)
    return (2 * (values**1.5).sin()).float().reshape(1, 3, *size).to(device)


def _last_block(own: nn.Module, depth: int) -> nn.Module:
    """The last of the module's blocks, in whatever list they are."""
    lists = [getattr(own, "blocks", None), *own.modules()]
    for part in lists:
        if isinstance(part, nn.ModuleList | nn.Sequential) and len(part) in (depth, _chunks(part)):
            last = part[-1]
            while isinstance(last, nn.ModuleList):  # DINOv2 keeps its blocks in chunks
                last = last[-1]
            return last
    raise UnsupportedModelError(f"{type(own).__name__} has no list of {depth} blocks")


def _chunks(part: nn.ModuleList | nn.Sequential) -> int:
    """How many lists of blocks a list holds."""
    return sum(isinstance(each, nn.ModuleList) for each in part)


def _output_of(block: nn.Module, run: Any) -> Tensor:
    """What a block returns in a run, (1, N, width)."""
    found: list[Tensor] = []

    def take(_module: nn.Module, _given: Any, out: Any) -> None:
        found.append(out[0] if isinstance(out, tuple) else out)

    handle = block.register_forward_hook(take)
    try:
        run()
    finally:
        handle.remove()
    return found[-1]
