"""Which timm module to build: for a named model, or for a network that only a checkpoint knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.domain import Size
from attnviz.errors import CheckpointError, UsageError

if TYPE_CHECKING:
    from attnviz.models.weights.inferred import InferredConfig

MODEL_ARGS = {
    "width": "embed_dim",
    "depth": "depth",
    "heads": "num_heads",
    "patch": "patch_size",
    "registers": "reg_tokens",
    "size": "img_size",
}
"""``--model-arg`` names, and what timm calls them."""

_EVA = {"registers": "num_reg_tokens"}
"""The same where timm's EVA models, DINOv3 among them, have another word."""


@dataclass(frozen=True)
class Architecture:
    """A timm model name, and the arguments that differ from its own."""

    timm_name: str
    arguments: dict[str, Any]


def timm_arguments(args: Mapping[str, int], *, eva: bool = False) -> dict[str, Any]:
    """The user's own sizes as timm's arguments; ``eva``: of a model in timm's EVA module.

    Raises:
        UsageError: An unknown name or a size below 1.
    """
    for name, value in args.items():
        if name not in MODEL_ARGS:
            known = ", ".join(MODEL_ARGS)
            raise UsageError(f"--model-arg {name} is unknown", f"known are {known}")
        if value < (0 if name == "registers" else 1):
            raise UsageError(f"--model-arg {name}={value} is too small")
    words = MODEL_ARGS | _EVA if eva else MODEL_ARGS
    return {words[name]: value for name, value in args.items()}


def stored_grid(inferred: InferredConfig) -> dict[str, Any]:
    """The argument that gives a module the position grid its weights were stored with."""
    if inferred.grid is None:
        return {}
    return {
        "img_size": (inferred.grid.height * inferred.patch, inferred.grid.width * inferred.patch)
    }


def from_inferred(
    inferred: InferredConfig, args: Mapping[str, int], *, dino: bool = False
) -> Architecture:
    """A module for a network that no name stands for, from its own shapes.

    ``dino``: a plain ViT gets its pixels as DINO's do, not as supervised ones. The head count is
    not stored in weights: it comes from a config, from ``args``, or is refused.

    Raises:
        CheckpointError: Something about the network cannot be told from the file.
    """
    heads = args.get("heads", inferred.heads)
    if heads is None:
        raise CheckpointError(
            "these weights fit no model of the catalogue, and the number of heads is not stored "
            f"in them (patch {inferred.patch}, width {inferred.width}, depth {inferred.depth})",
            "name the model with --model, or give --model-arg heads=N",
        )
    if inferred.width % heads:
        raise CheckpointError(
            f"{heads} heads do not divide the width {inferred.width} of the weights"
        )
    arguments: dict[str, Any] = {
        "patch_size": inferred.patch,
        "embed_dim": inferred.width,
        "depth": inferred.depth,
        "num_heads": heads,
        "qkv_bias": inferred.qkv_bias,
        **stored_grid(inferred),
    }
    if inferred.layer_scale:
        arguments["init_values"] = 1e-5
    if inferred.rotary:
        arguments["num_reg_tokens"] = inferred.registers
        arguments["mlp_ratio"] = inferred.mlp_hidden / inferred.width
        name = "vit_small_plus_patch16_dinov3" if inferred.gated_mlp else "vit_small_patch16_dinov3"
        return Architecture(name, arguments)
    arguments["mlp_ratio"] = inferred.mlp_hidden / inferred.width * (2 if inferred.gated_mlp else 1)
    if inferred.distilled:
        return Architecture("deit_tiny_distilled_patch16_224", arguments)
    if inferred.gated_mlp:
        name = "vit_giant_patch14_dinov2"
    elif inferred.layer_scale:
        name = "vit_small_patch14_dinov2"
    else:
        name = "vit_small_patch16_224.dino" if dino else "vit_small_patch16_224"
    arguments |= {
        "class_token": inferred.has_cls,
        "global_pool": "token" if inferred.has_cls else "avg",
        "reg_tokens": inferred.registers,
        "no_embed_class": inferred.positions_prefix == 0 and inferred.prefix > 0,
        "qk_norm": inferred.qk_norm,
    }
    return Architecture(name, arguments)


def native_size(inferred: InferredConfig) -> Size | None:
    """The input size that a checkpoint speaks of: its config's, or that of its position grid."""
    if inferred.image_size is not None:
        return inferred.image_size
    if inferred.grid is None:
        return None
    return Size(inferred.grid.height * inferred.patch, inferred.grid.width * inferred.patch)
