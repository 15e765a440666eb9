"""config.json of the transformers library: the layout that it names, and what it adds to shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from attnviz.domain import Size
from attnviz.errors import CheckpointError
from attnviz.models.weights.inferred import InferredConfig, Source, infer_config
from attnviz.models.weights.preprocessor import pixels


@dataclass(frozen=True)
class _Defaults:
    """The layout of a model_type, and what transformers takes where config.json is silent.

    ``heads`` None: a config without their number is refused.
    """

    source: Source
    eps: float
    heads: int | None = None
    image: int | None = None
    activation: str = "gelu"


_CLIP = _Defaults(Source.HF_CLIP, 1e-5, 12, 224, "quick_gelu")
_SIGLIP = _Defaults(Source.HF_SIGLIP, 1e-6, 12, 224, "gelu_pytorch_tanh")
_KINDS = {
    "vit": _Defaults(Source.HF_VIT, 1e-12),
    "deit": _Defaults(Source.HF_DEIT, 1e-12),
    "vit_mae": _Defaults(Source.HF_MAE, 1e-12),
    "vit_msn": _Defaults(Source.HF_MSN, 1e-6),
    "ijepa": _Defaults(Source.HF_IJEPA, 1e-12),
    "dinov2": _Defaults(Source.HF_DINOV2, 1e-6),
    "dinov2_with_registers": _Defaults(Source.HF_DINOV2_REGISTERS, 1e-6),
    "dinov3_vit": _Defaults(Source.HF_DINOV3, 1e-5),
    "beit": _Defaults(Source.HF_BEIT, 1e-12),
    "data2vec-vision": _Defaults(Source.HF_BEIT, 1e-12),
    "clip": _CLIP,
    "clip_vision_model": _CLIP,
    "siglip": _SIGLIP,
    "siglip_vision_model": _SIGLIP,
}
"""By ``model_type`` of config.json."""

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""hidden_act of transformers to timm's word for the same function."""


def source_of(config: Mapping[str, Any], path: Path) -> Source:
    """The layout that ``model_type`` of config.json names.

    Raises:
        CheckpointError: A model whose layout is not known.
    """
    return _defaults_of(config, path).source


def _defaults_of(config: Mapping[str, Any], path: Path) -> _Defaults:
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise CheckpointError(
            f"{path} is of a {kind!r} model, which is not supported",
            f"supported are {', '.join(_KINDS)}",
        )
    return _KINDS[kind]


def infer_from_config(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path
) -> InferredConfig:
    """The sizes that shapes and config.json give together, of tensors in timm's naming.

    Raises:
        CheckpointError: They disagree, or config.json leaves out the number of heads, or asks for
            what timm's model does not compute.
    """
    defaults = _defaults_of(config, path)
    source = defaults.source
    tower = config.get("vision_config")
    if isinstance(tower, Mapping):
        config = tower  # of a model that has a text tower too
    rotary = source is Source.HF_DINOV3
    image = pixels(config.get("image_size", defaults.image))
    patch = pixels(config.get("patch_size"))
    sizes: tuple[Size, ...] = (image,) if image and not rotary else ()
    inferred = infer_config(
        tensors, path, rotary=rotary, sizes=sizes, stated_by="config.json" if sizes else ""
    )
    heads = config.get("num_attention_heads", defaults.heads)
    if type(heads) is not int or heads < 1 or inferred.width % heads:
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
        ("num_attention_heads", heads, inferred.heads),
    ):
        if None not in (stated, measured) and stated != measured:
            raise CheckpointError(
                f"{path}: config.json says {name} {stated}, the weights have {measured}",
                "config.json and weights are of two models",
            )
    parameters = config.get("rope_parameters")
    holder = parameters if isinstance(parameters, dict) and "rope_theta" not in config else config
    return replace(
        inferred,
        heads=heads,
        eps=_number(config, "layer_norm_eps", defaults.eps, path),
        activation=_activation(config, defaults, inferred, path),
        rope_theta=_number(holder, "rope_theta", 100.0, path) if rotary else None,
        image_size=image,
    )


def _number(config: Mapping[str, Any], name: str, default: float, path: Path) -> float:
    """A positive number of config.json; the default where there is none, or null."""
    value = default if config.get(name) is None else config[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise CheckpointError(
            f"{path}: {name} of config.json is {value!r}, which is not a positive number"
        )
    return float(value)


def _activation(
    config: Mapping[str, Any], defaults: _Defaults, inferred: InferredConfig, path: Path
) -> str | None:
    """The activation of the MLP in timm's word; None: that of timm's model of this layout."""
    stated = config.get("hidden_act", "silu" if inferred.gated_mlp else defaults.activation)
    if inferred.gated_mlp and defaults.source is not Source.HF_DINOV3:
        return None  # Dinov2's SwiGLU is fixed, whatever hidden_act says
    # timm's EVA and BEiT models take no other activation than their own.
    fixed = defaults.source in (Source.HF_DINOV3, Source.HF_BEIT)
    if fixed and stated == ("silu" if inferred.gated_mlp else "gelu"):
        return None
    if fixed or not isinstance(stated, str) or stated not in _ACTIVATIONS:
        known = ("silu" if inferred.gated_mlp else "gelu",) if fixed else tuple(_ACTIVATIONS)
        raise CheckpointError(
            f"{path}: config.json says hidden_act {stated!r}, which is not supported",
            f"supported here: {', '.join(known)}",
        )
    return _ACTIVATIONS[stated]
