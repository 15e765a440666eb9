"""Which named model a checkpoint is, and whether it is the one that was asked for."""

from __future__ import annotations

from attnviz.domain import Size
from attnviz.errors import CheckpointError
from attnviz.models.catalogue import MODELS, ModelSpec, find_spec
from attnviz.models.weights.checkpoint import Checkpoint
from attnviz.models.weights.inferred import InferredConfig, Source

_IMAGENET = (0.485, 0.456, 0.406)

_FAMILIES = {
    Source.DINO: "dino_",
    Source.DINOV2: "dinov2_",
    Source.DINOV3: "dinov3_",
    Source.HF_VIT: "dino_",
    Source.HF_DINOV2: "dinov2_",
    Source.HF_DINOV2_REGISTERS: "dinov2_",
    Source.HF_DINOV3: "dinov3_",
}
"""Layout to the names that may be meant; a timm file may be any with layer scale."""

_SIZES = {
    (192, 12): "Ti",
    (384, 12): "S",
    (768, 12): "B",
    (1024, 24): "L",
    (1280, 32): "H",
    (1408, 40): "g",
    (1536, 40): "g",
    (1664, 48): "G",
}
"""Width and depth of the sizes that papers have letters for."""


def shape_name(inferred: InferredConfig) -> str:
    """``ViT-B/16``, as papers call a network of these sizes; empty for sizes without a letter."""
    letter = _SIZES.get((inferred.width, inferred.depth))
    return f"ViT-{letter}/{inferred.patch}" if letter else ""


def identify(checkpoint: Checkpoint) -> ModelSpec | None:
    """The one model of the catalogue whose layout and shapes the checkpoint has, or None.

    A ViT with a classifier, or with other channel means than ImageNet's, is a supervised one of
    the same shapes. Shapes do not prove that these are the weights of the name: they choose how the
    model is built, and what figures call it is its file.
    """
    if checkpoint.timm is not None:
        spec = find_spec(checkpoint.timm.name)
        return spec if spec is not None and _has_sizes(checkpoint.inferred, spec) else None
    specs = [spec for spec in MODELS.values() if _fits(checkpoint, spec)]
    return specs[0] if len(specs) == 1 else None


def _has_sizes(inferred: InferredConfig, spec: ModelSpec) -> bool:
    sizes = (inferred.patch, inferred.width, inferred.depth, inferred.registers)
    return sizes == (spec.patch, spec.width, spec.depth, spec.registers)


def _fits(checkpoint: Checkpoint, spec: ModelSpec) -> bool:
    inferred, source = checkpoint.inferred, checkpoint.source
    # In timm's own files the shapes without layer scale are those of supervised models too.
    family = _FAMILIES.get(source)
    side = spec.native_size // spec.patch
    return (
        (spec.layer_scale if family is None else spec.name.startswith(family))
        and _has_sizes(inferred, spec)
        and inferred.layer_scale == spec.layer_scale
        and (inferred.gated_mlp, inferred.rotary) == (spec.gated_mlp, spec.rotary)
        and inferred.grid == (None if spec.rotary else Size(side, side))
        and inferred.heads in (None, spec.heads)
        and (inferred.in_chans, inferred.has_cls, inferred.distilled) == (3, True, False)
        and (inferred.final_norm, inferred.pre_norm, inferred.qk_norm) == ("norm", False, False)
        and not (inferred.block_biases or inferred.shared_biases)
        and not _is_another_training(checkpoint)
    )


def _is_another_training(checkpoint: Checkpoint) -> bool:
    """Whether something says that these are other weights of the same shapes."""
    preprocessing = checkpoint.preprocessing
    if preprocessing is not None and any(
        abs(have - want) > 2e-3 for have, want in zip(preprocessing.mean, _IMAGENET, strict=True)
    ):
        return True
    if any(name.startswith("local_cls_norm.") for name in checkpoint.unused):
        return True  # DINOv3 trained on satellite images: ViT-L of the same shapes
    classifier = any(name.startswith(("classifier.", "head.")) for name in checkpoint.unused)
    return classifier and checkpoint.source in (Source.HF_VIT, Source.DINO)


def check_against(
    checkpoint: Checkpoint,
    *,
    name: str,
    patch: int,
    width: int,
    depth: int,
    heads: int,
    registers: int,
    has_cls: bool,
    in_chans: int = 3,
) -> None:
    """Compare a checkpoint with the model that was asked for.

    Raises:
        CheckpointError: They differ; the message states both numbers.
    """
    inferred = checkpoint.inferred
    for what, have, want in (
        ("patch size", inferred.patch, patch),
        ("input channels", inferred.in_chans, in_chans),
        ("width", inferred.width, width),
        ("depth", inferred.depth, depth),
        ("register tokens", inferred.registers, registers),
        ("CLS tokens", int(inferred.has_cls), int(has_cls)),
        ("heads", inferred.heads, heads),
    ):
        if have is None or have == want:
            continue
        spec = identify(checkpoint)
        hint = f"their shape is that of {spec.name}: use --model {spec.name}" if spec else ""
        if what == "input channels":
            hint = f"images have {want} channels; the kernels are not adapted"
        raise CheckpointError(
            f"{checkpoint.path}: {what} {have} in the weights, {want} in {name}",
            hint or "choose the model that these weights were trained for",
        )
