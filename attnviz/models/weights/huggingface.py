"""Folders of the transformers library: names, and what config.json and its neighbours say.

ViT, DeiT, Dinov2, Dinov2WithRegisters and DINOv3ViT, in the spelling that is saved to disk and the
one that newer versions use in memory. Query, key and value are joined in that order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnviz.domain import Size
from attnviz.errors import CheckpointError
from attnviz.models.weights.file import read_json
from attnviz.models.weights.inferred import InferredConfig, Preprocessing, Source, infer_config
from attnviz.models.weights.layouts import join_class_position, separate_biases, split_unused

SOURCES = {
    "vit": Source.HF_VIT,
    "deit": Source.HF_DEIT,
    "dinov2": Source.HF_DINOV2,
    "dinov2_with_registers": Source.HF_DINOV2_REGISTERS,
    "dinov3_vit": Source.HF_DINOV3,
}
"""model_type of config.json to layout."""

_EPS = {
    Source.HF_VIT: 1e-12,
    Source.HF_DEIT: 1e-12,
    Source.HF_DINOV2: 1e-6,
    Source.HF_DINOV2_REGISTERS: 1e-6,
    Source.HF_DINOV3: 1e-5,
}
"""What transformers takes for layer_norm_eps where config.json has none."""

_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
"""Pillow's numbers, as preprocessor_config.json stores them in ``resample``."""

_RESCALE = 1 / 255

_BLOCK = re.compile(r"^(?:encoder\.|model\.)?layers?\.(\d+)\.(.+)$")

_OUTSIDE = {
    "embeddings.cls_token": "cls_token",
    "embeddings.distillation_token": "dist_token",
    "embeddings.register_tokens": "reg_token",
    "embeddings.position_embeddings": "pos_embed",
    "embeddings.patch_embeddings.projection.weight": "patch_embed.proj.weight",
    "embeddings.patch_embeddings.projection.bias": "patch_embed.proj.bias",
    "embeddings.patch_embeddings.weight": "patch_embed.proj.weight",
    "embeddings.patch_embeddings.bias": "patch_embed.proj.bias",
    "layernorm.weight": "norm.weight",
    "layernorm.bias": "norm.bias",
    "norm.weight": "norm.weight",
    "norm.bias": "norm.bias",
}
_INSIDE = {
    "attention.attention.query": "q",
    "attention.attention.key": "k",
    "attention.attention.value": "v",
    "attention.q_proj": "q",
    "attention.k_proj": "k",
    "attention.v_proj": "v",
    "attention.output.dense": "attn.proj",
    "attention.o_proj": "attn.proj",
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
    "norm1": "norm1",
    "norm2": "norm2",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
    "mlp.weights_in": "mlp.fc1",
    "mlp.weights_out": "mlp.fc2",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "mlp.fc2",
}


def is_layout(tensors: Mapping[str, Tensor]) -> bool:
    """Whether names are those of transformers."""
    return any(name.startswith("embeddings.") for name in tensors)


def source_of(config: Mapping[str, Any], path: Path) -> Source:
    """The layout that ``model_type`` of config.json names.

    Raises:
        CheckpointError: A model whose layout is not known.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in SOURCES:
        raise CheckpointError(
            f"{path} is of a {kind!r} model, which cannot be read",
            f"known are {', '.join(SOURCES)}",
        )
    return SOURCES[kind]


def convert(
    found: Mapping[str, Tensor], source: Source, path: Path
) -> tuple[dict[str, Tensor], list[str]]:
    """Tensors in timm's naming, and the names that were left over.

    Raises:
        CheckpointError: A name that no supported model has, or a query without its key.
    """
    kept, ignored = split_unused(found)
    blocks: dict[str, dict[str, Tensor]] = {}
    out: dict[str, Tensor] = {}
    for name, tensor in kept.items():
        match = _BLOCK.match(name)
        if match:
            blocks.setdefault(f"blocks.{match.group(1)}.", {})[match.group(2)] = tensor
        elif name in _OUTSIDE:
            out[_OUTSIDE[name]] = tensor
        elif not name.startswith("rope_embeddings."):
            raise CheckpointError(f"{path}: {name} is no tensor of a {source.value} model")
    biases: dict[str, Tensor] = {}
    for place, block in blocks.items():
        out |= _convert_block(block, place, source, path, biases)
    out |= separate_biases(biases)
    if source is Source.HF_DINOV2_REGISTERS:
        out = join_class_position(out)
    return out, ignored


def _convert_block(
    block: Mapping[str, Tensor], place: str, source: Source, path: Path, biases: dict[str, Tensor]
) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    parts: dict[str, Tensor] = {}
    rotary = source is Source.HF_DINOV3
    for name, tensor in block.items():
        stem, _, kind = name.rpartition(".")
        if name in ("layer_scale1.lambda1", "layer_scale2.lambda1"):
            number = stem[-1]
            out[f"{place}gamma_{number}" if rotary else f"{place}ls{number}.gamma"] = tensor
            continue
        ours = _INSIDE.get(stem)
        if ours is None:
            raise CheckpointError(f"{path}: {place}{name} is no tensor of a {source.value} model")
        if ours in ("q", "k", "v", "gate", "up"):
            parts[f"{ours}.{kind}"] = tensor
        else:
            out[f"{place}{ours}.{kind}"] = tensor
    _join_attention(parts, place, out, biases, path, separate=rotary)
    _place_mlp(parts, place, out, path, rotary=rotary)
    return out


def _join_attention(
    parts: Mapping[str, Tensor],
    place: str,
    out: dict[str, Tensor],
    biases: dict[str, Tensor],
    path: Path,
    *,
    separate: bool,
) -> None:
    missing = [letter for letter in "qkv" if f"{letter}.weight" not in parts]
    if missing:
        raise CheckpointError(f"{path}: {place}attention has no {missing[0]} weight")
    out[f"{place}attn.qkv.weight"] = torch.cat([parts[f"{letter}.weight"] for letter in "qkv"])
    if not any(f"{letter}.bias" in parts for letter in "qkv"):
        return
    # DINOv3 has a bias of query and value only: the missing one is zero.
    zero = torch.zeros(parts["q.weight"].shape[0])
    joined = torch.cat([parts.get(f"{letter}.bias", zero).float() for letter in "qkv"])
    if separate:
        biases[f"{place}attn."] = joined
    else:
        out[f"{place}attn.qkv.bias"] = joined


def _place_mlp(
    parts: Mapping[str, Tensor], place: str, out: dict[str, Tensor], path: Path, *, rotary: bool
) -> None:
    for kind in ("weight", "bias"):
        gate, up = parts.get(f"gate.{kind}"), parts.get(f"up.{kind}")
        if gate is not None and up is None:
            raise CheckpointError(f"{path}: {place}mlp has a gate and no up projection")
        if up is None:
            continue
        if gate is None:
            out[f"{place}mlp.fc1.{kind}"] = up
        elif rotary:
            out |= {f"{place}mlp.fc1_g.{kind}": gate, f"{place}mlp.fc1_x.{kind}": up}
        else:
            out[f"{place}mlp.fc1.{kind}"] = torch.cat([gate, up])


def infer_from_config(
    config: Mapping[str, Any], source: Source, tensors: Mapping[str, Tensor], path: Path
) -> InferredConfig:
    """The sizes that shapes and config.json give together.

    Raises:
        CheckpointError: They disagree, or config.json leaves out the number of heads, or asks for
            what timm's model does not compute.
    """
    rotary = source is Source.HF_DINOV3
    image, patch = _size(config.get("image_size")), _size(config.get("patch_size"))
    grid = None
    if image and patch and not rotary:
        grid = Size(image.height // patch.height, image.width // patch.width)
    inferred = infer_config(tensors, path, rotary=rotary, grid=grid)
    heads = config.get("num_attention_heads")
    if not isinstance(heads, int) or heads < 1 or inferred.width % heads:
        raise CheckpointError(
            f"{path}: num_attention_heads of config.json is {heads!r}, "
            f"the width is {inferred.width}"
        )
    for name, stated, measured in (
        ("hidden_size", config.get("hidden_size"), inferred.width),
        ("num_hidden_layers", config.get("num_hidden_layers"), inferred.depth),
        ("patch_size", patch.height if patch else None, inferred.patch),
        ("num_channels", config.get("num_channels"), inferred.in_chans),
        ("num_register_tokens", config.get("num_register_tokens"), inferred.registers),
    ):
        if stated is not None and stated != measured:
            raise CheckpointError(
                f"{path}: config.json says {name} {stated}, the weights have {measured}",
                "config.json and weights are of two models",
            )
    _check_activation(config, source, inferred, path)
    eps = _number(config, "layer_norm_eps", _EPS[source], path)
    parameters = config.get("rope_parameters")
    holder = parameters if isinstance(parameters, dict) and "rope_theta" not in config else config
    theta = _number(holder, "rope_theta", 100.0, path) if rotary else None
    return replace(
        inferred,
        heads=heads,
        eps=eps,
        rope_theta=theta,
        image_size=image,
    )


def _number(config: Mapping[str, Any], name: str, default: float, path: Path) -> float:
    """A positive number of config.json; the default where there is none, or null."""
    value = default if config.get(name) is None else config[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise CheckpointError(f"{path}: {name} of config.json is {value!r}, no positive number")
    return float(value)


def _check_activation(
    config: Mapping[str, Any], source: Source, inferred: InferredConfig, path: Path
) -> None:
    if inferred.gated_mlp and source is not Source.HF_DINOV3:
        return  # Dinov2's SwiGLU is fixed, whatever hidden_act says.
    wanted = "silu" if inferred.gated_mlp else "gelu"
    actual = config.get("hidden_act", wanted)
    if actual != wanted:
        raise CheckpointError(
            f"{path}: config.json says hidden_act {actual!r}; only {wanted!r} can be shown exactly"
        )


def preprocessing_of(folder: Path) -> Preprocessing | None:
    """What preprocessor_config.json of the folder says; None without one.

    Raises:
        CheckpointError: It asks for another range than 0..1 before normalising.
    """
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        return None
    config = read_json(path)
    factor = config.get("rescale_factor", _RESCALE)
    known = isinstance(factor, int | float) and abs(factor / _RESCALE - 1) <= 1e-3
    if config.get("do_rescale") is False or not known:
        raise CheckpointError(f"{path}: only pixels divided by 255 can be prepared")
    if config.get("do_normalize") is False:
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    else:
        try:
            mean, std = three(config["image_mean"]), three(config["image_std"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"{path} has no image_mean and image_std of 3 numbers") from error
    size = config.get("crop_size") if config.get("do_center_crop") else None
    resample = config.get("resample", 2)
    return Preprocessing(
        mean,
        std,
        _FILTERS.get(resample if isinstance(resample, int) else 2, "bilinear"),
        _size(size or config.get("size")),
    )


def three(values: Any) -> tuple[float, float, float]:
    """Three numbers, one a channel; a single one stands for all. ValueError for another count."""
    numbers = [float(value) for value in values] if isinstance(values, list | tuple) else None
    if numbers is None:
        numbers = [float(values)]
    if len(numbers) == 1:
        numbers *= 3
    red, green, blue = numbers
    return red, green, blue


def _size(value: Any) -> Size | None:
    if isinstance(value, dict):
        if "shortest_edge" in value:
            value = value["shortest_edge"]
        else:
            value = [value.get("height"), value.get("width")]
    sides = value if isinstance(value, list) else [value, value]
    if len(sides) == 2 and all(isinstance(side, int) and 0 < side < 1 << 16 for side in sides):
        return Size(sides[0], sides[1])
    return None
