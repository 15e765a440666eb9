"""Which timm model to build: for a name, for a config, or for shapes alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnviz.domain import Size
from attnviz.errors import CheckpointError, UsageError
from attnviz.models.weights.inferred import InferredConfig, Source

MODEL_ARGS = {
    "width": "embed_dim",
    "depth": "depth",
    "heads": "num_heads",
    "patch": "patch_size",
    "registers": "reg_tokens",
    "size": "img_size",
    "img-height": "img_size",
    "img-width": "img_size",
}
"""``--model-arg`` names, and what timm calls them."""

_EVA = {"registers": "num_reg_tokens"}
"""The same where timm's EVA models, DINOv3 among them, have another word."""


def gate_arguments(inferred: InferredConfig) -> dict[str, Any]:
    """SwiGLU, which timm's configs cannot say, where the shapes show a gate."""
    if not inferred.gated_mlp:
        return {}
    layer = "SwiGLU" if inferred.separate_gate else "SwiGLUPacked"
    return {"mlp_layer": layer, "act_layer": "silu"}


@dataclass(frozen=True)
class Architecture:
    """A timm model name, and the arguments that differ from its own."""

    timm_name: str
    arguments: dict[str, Any]


def check_args(args: Mapping[str, int]) -> None:
    """Check the names and values of ``--model-arg``.

    Raises:
        UsageError: An unknown name, a size below 1, or one side of an image without the other.
    """
    for name, value in args.items():
        if _spelled(name) not in MODEL_ARGS:
            known = ", ".join(MODEL_ARGS)
            raise UsageError(f"--model-arg {name} is unknown", f"known are {known}")
        if value < (0 if name == "registers" else 1):
            raise UsageError(f"--model-arg {name}={value} is too small")
    sides = {_spelled(name) for name in args} & {"size", "img-height", "img-width"}
    if len(sides) == 1 and sides != {"size"}:
        missing = ({"img-height", "img-width"} - sides).pop()
        raise UsageError(f"--model-arg {sides.pop()} needs {missing} as well")
    if len(sides) > 1 and "size" in sides:
        raise UsageError("--model-arg size is both sides: leave out img-height and img-width")


def _spelled(name: str) -> str:
    return name.replace("_", "-")  # as keyword arguments of Python have to be written


def size_of(args: Mapping[str, int]) -> Size | None:
    """Height and width in pixels of ``--model-arg``, if it names them."""
    given = {_spelled(name): value for name, value in args.items()}
    if "size" in given:
        return Size(given["size"], given["size"])
    if "img-height" in given:
        return Size(given["img-height"], given["img-width"])
    return None


def timm_arguments(args: Mapping[str, int], *, eva: bool = False) -> dict[str, Any]:
    """The user's own sizes as timm's arguments; ``eva``: of a model in timm's EVA module.

    Raises:
        UsageError: As ``check_args``.
    """
    check_args(args)
    words = MODEL_ARGS | _EVA if eva else MODEL_ARGS
    out: dict[str, Any] = {words[_spelled(name)]: value for name, value in args.items()}
    size = size_of(args)
    return out if size is None else out | {"img_size": tuple(size)}


def stored_size(inferred: InferredConfig) -> dict[str, Any]:
    """The argument that gives a module the position grid its weights were stored with."""
    size = inferred.stored_size
    return {} if size is None else {"img_size": tuple(size)}


_IMAGENET = (Source.DINO, Source.TORCHVISION, Source.HF_MAE, Source.HF_MSN, Source.HF_IJEPA)
"""Layouts of plain ViTs whose authors prepare pixels with ImageNet's statistics."""


def from_inferred(
    inferred: InferredConfig, args: Mapping[str, int], source: Source = Source.TIMM
) -> Architecture:
    """A timm model for a network that nothing names, from its own shapes.

    ``source``: its layout, which tells how its authors prepare pixels. The head count is not stored
    in weights: it comes from a config, from ``args``, or is refused.

    Raises:
        CheckpointError: The file does not say enough about the network.
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
        **stored_size(inferred),
    }
    if inferred.layer_scale:
        arguments["init_values"] = 1e-5
    if inferred.block_biases or inferred.shared_biases or source is Source.HF_BEIT:
        return _beit(inferred, arguments)
    if inferred.rotary:
        arguments["num_reg_tokens"] = inferred.registers
        arguments["mlp_ratio"] = inferred.mlp_hidden / inferred.width
        gated = inferred.gated_mlp
        name = "vit_small_plus_patch16_dinov3" if gated else "vit_small_patch16_dinov3"
        return Architecture(name, arguments)
    arguments["mlp_ratio"] = mlp_ratio(inferred)
    if inferred.activation is not None:
        arguments["act_layer"] = inferred.activation
    if inferred.distilled:
        return Architecture("deit_tiny_distilled_patch16_224", arguments)
    arguments |= token_arguments(inferred)
    arguments |= {"reg_tokens": inferred.registers, "pre_norm": inferred.pre_norm}
    arguments |= gate_arguments(inferred)
    return Architecture(_plain_name(inferred, source), arguments)


def _plain_name(inferred: InferredConfig, source: Source) -> str:
    """A model of timm's ViT module that differs from the wanted one in sizes and switches only."""
    if inferred.gated_mlp and not inferred.separate_gate:
        return "vit_giant_patch14_dinov2"
    if source in (Source.HF_CLIP, Source.OPEN_CLIP):
        return "vit_base_patch16_clip_224.openai"
    if source is Source.HF_SIGLIP:
        return "vit_base_patch16_siglip_224"
    if source in _IMAGENET:
        return "vit_small_patch16_224.dino"
    return "vit_small_patch14_dinov2" if inferred.layer_scale else "vit_small_patch16_224"


def _beit(inferred: InferredConfig, arguments: dict[str, Any]) -> Architecture:
    """BEiT: relative position biases, in every block or shared by all."""
    pooled = inferred.final_norm != "norm"
    return Architecture(
        "beit_base_patch16_224",
        arguments
        | {
            "mlp_ratio": inferred.mlp_hidden / inferred.width,
            "swiglu_mlp": inferred.gated_mlp,
            "use_abs_pos_emb": inferred.absolute_positions,
            "use_rel_pos_bias": inferred.block_biases,
            "use_shared_rel_pos_bias": inferred.shared_biases,
            "init_values": 1e-5 if inferred.layer_scale else 0.0,
            "use_fc_norm": pooled,
            "global_pool": "avg" if pooled else "token",
        },
    )


def mlp_ratio(inferred: InferredConfig) -> float:
    """The width of an MLP's first layer, a packed gate included, over that of the tokens."""
    packed = inferred.gated_mlp and not inferred.separate_gate
    return inferred.mlp_hidden / inferred.width * (2 if packed else 1)


def token_arguments(inferred: InferredConfig) -> dict[str, Any]:
    """Class token, positions, pooling, norms and attention of timm's ViT, as in the file."""
    pool = "token" if inferred.has_cls and inferred.final_norm != "fc_norm" else "avg"
    return {
        "class_token": inferred.has_cls,
        "global_pool": "map" if inferred.attention_pool else pool,
        "fc_norm": inferred.final_norm == "fc_norm",
        "no_embed_class": inferred.positions_prefix == 0 and inferred.prefix > 0,
        "qk_norm": inferred.qk_norm,
    }


def native_size(inferred: InferredConfig) -> Size | None:
    """The input size that a checkpoint speaks of: its config's, or that of its position grid."""
    return inferred.image_size or inferred.stored_size
