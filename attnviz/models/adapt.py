"""Parts of timm's ViT that a file has otherwise than the model of that name or config.

A config.json of timm cannot say every argument that its weights were trained with (``mlp_layer``,
``act_layer``), and weights that were trained further may have lost or gained a CLS token, layer
scale or another final norm. Shapes and names tell; sizes (patch, width, depth) must agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from attnviz.models.architecture import Architecture, gate_arguments, mlp_ratio
from attnviz.models.build import find_family
from attnviz.models.weights.inferred import InferredConfig

_ADAPTED = ("vision_transformer",)
"""timm's modules whose arguments are known here."""


def adapted(
    module: Any,
    architecture: Architecture,
    inferred: InferredConfig,
    tensors: Mapping[str, Tensor],
) -> tuple[Architecture, tuple[str, ...]]:
    """The architecture with the file's parts, and lines on what was assumed with them.

    ``module`` is what the architecture builds. Where nothing differs, or the sizes do, it is
    returned as it is.
    """
    sizes = (module.patch_embed.patch_size[0], module.embed_dim, len(module.blocks))
    if find_family(architecture.timm_name) not in _ADAPTED or sizes != (
        inferred.patch,
        inferred.width,
        inferred.depth,
    ):
        return architecture, ()
    own = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    changes = _token_changes(module, own, inferred) | _block_changes(own, inferred, tensors)
    gate = _gate_changes(own, inferred)
    if "act_layer" in gate:
        gate["act_layer"] = architecture.arguments.get("act_layer", gate["act_layer"])
    if not changes and not gate:
        return architecture, ()
    arguments = architecture.arguments | changes | gate
    return Architecture(architecture.timm_name, arguments), _notes(architecture.timm_name, gate)


def _notes(timm_name: str, gate: Mapping[str, Any]) -> tuple[str, ...]:
    if not gate:
        return ()
    assumed = f"mlp_layer {gate['mlp_layer']} with act_layer {gate['act_layer']} is assumed"
    other = "model_args of a config.json can name others"
    return (f"its MLP has a gate, which timm's {timm_name} does not have: {assumed}; {other}",)


def _token_changes(
    module: Any, own: Mapping[str, tuple[int, ...]], inferred: InferredConfig
) -> dict[str, Any]:
    """Class token, their positions, pooling and norms."""
    out: dict[str, Any] = {}
    if ("cls_token" in own) != inferred.has_cls:
        out["class_token"] = inferred.has_cls
        if module.global_pool == "token":
            out["global_pool"] = "avg"
    pooled = "attn_pool.latent" in own
    if inferred.attention_pool and not pooled:
        out["global_pool"] = "map"
    norms = ("norm.weight" in own, "fc_norm.weight" in own)
    stated = (inferred.final_norm == "norm", inferred.final_norm == "fc_norm")
    if inferred.final_norm is not None and (norms != stated or out):
        out["fc_norm"] = inferred.final_norm == "fc_norm"
    has_pre = "norm_pre.weight" in own
    if has_pre != inferred.pre_norm:
        out["pre_norm"] = inferred.pre_norm
    if inferred.grid is not None and inferred.prefix:
        embedded = inferred.positions_prefix > 0
        if embedded == bool(getattr(module, "no_embed_class", False)):
            out["no_embed_class"] = not embedded
    return out


def _block_changes(
    own: Mapping[str, tuple[int, ...]], inferred: InferredConfig, tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Layer scale, biases, norms of queries and keys, and the width of the MLP."""
    out: dict[str, Any] = {}
    first = "blocks.0."
    if inferred.layer_scale and f"{first}ls1.gamma" not in own:
        out["init_values"] = 1e-5
    if (f"{first}attn.qkv.bias" in own) != inferred.qkv_bias:
        out["qkv_bias"] = inferred.qkv_bias
    if inferred.qk_norm and f"{first}attn.q_norm.weight" not in own:
        out["qk_norm"] = True
    layer = f"{first}mlp.fc1.weight"
    if layer in own and layer in tensors and own[layer] != tuple(tensors[layer].shape):
        out["mlp_ratio"] = mlp_ratio(inferred)
    return out


def _gate_changes(own: Mapping[str, tuple[int, ...]], inferred: InferredConfig) -> dict[str, Any]:
    first, second = own.get("blocks.0.mlp.fc1.weight"), own.get("blocks.0.mlp.fc2.weight")
    packed = first is not None and second is not None and first[0] == 2 * second[1]
    gated = packed or "blocks.0.mlp.fc1_g.weight" in own
    if inferred.gated_mlp and not gated:
        return gate_arguments(inferred) | {"mlp_ratio": mlp_ratio(inferred)}
    return {}
