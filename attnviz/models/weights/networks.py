"""Choosing the network to show among those in a checkpoint.

Training files nest: {"teacher": {"module.backbone.patch_embed.proj.weight": ...}, "student": ...}.
Dict keys and the parts of a tensor's name are treated alike, as one dotted path; every patch
embedding belongs to a network, and the path above it is the root of that network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.errors import CheckpointError
from attnviz.models.weights.text import is_tensor

if TYPE_CHECKING:
    from torch import Tensor

ANCHORS = (
    "patch_embed.proj.weight",  # DINO, DINOv2, DINOv3, timm
    "embeddings.patch_embeddings.projection.weight",  # transformers
    "embeddings.patch_embeddings.weight",  # transformers, DINOv3
    "embeddings.patch_embedding.weight",  # transformers, CLIP and SigLIP
    "conv_proj.weight",  # torchvision
    "ln_pre.weight",  # open_clip
)
ROLES = (
    {"teacher"},
    {"state_dict_ema", "model_ema", "ema", "ema_state_dict", "ema_model", "teacher_ema"},
    {"target_encoder", "momentum_encoder", "teacher_encoder", "teacher_backbone"},
)
"""Roots to prefer, best first: the averaged network is the one that is published."""

STUDENTS = {"student", "student_encoder", "student_backbone"}
WRAPPERS = frozenset(
    {
        *("module", "model", "models", "net", "network", "base_model", "transformer"),
        *("backbone", "encoder", "base_encoder", "trunk", "feature_extractor"),
        *("visual", "vision_model", "vision_encoder", "vision_tower", "image_encoder"),
        *("vit", "deit", "dinov2", "dinov2_with_registers", "dinov3", "dinov3_vit", "ijepa"),
        *("beit", "data2vec_vision"),
        *("state_dict", "model_state_dict", "model_state", "weights", "params", "checkpoint"),
    }
).union(STUDENTS, *ROLES)
"""Words that a training framework or a wrapper class puts before the names of a network."""

# Compilers and parallel wrappers insert these anywhere in a name.
_INSERTED = re.compile(
    r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
_SHOWN = 8


@dataclass(frozen=True, eq=False)
class Network:
    """The tensors of one network, without its root.

    ``key`` is what distinguished it, or None. ``beside``: tensors outside the root of the only
    network, such as a classifier.
    """

    tensors: dict[str, Tensor]
    key: str | None
    beside: dict[str, Tensor]


def choose_network(content: Mapping[str, Any], path: Path, key: str | None) -> Network:
    """The network under ``key``, or else the teacher, the averaged one, or the only one.

    Raises:
        CheckpointError: No known layout, no such key, or several networks to choose from.
    """
    tensors = {plain_name(name): tensor for name, tensor in _flatten(content)}
    if not tensors:
        raise CheckpointError(f"{path} holds no tensors{_list('keys', _keys(content))}")
    roots = sorted({name[: -len(anchor)] for name in tensors for anchor in ANCHORS
                    if name == anchor or name.endswith("." + anchor)})  # fmt: skip
    if not roots:
        raise CheckpointError(
            f"{path} is in no known layout of a Vision Transformer: 0 of its {len(tensors)} "
            f"tensors matched, first missing: {ANCHORS[0]}"
            f"{_list('it begins with', list(tensors)[:3])}",
            "known are the layouts of DINO, DINOv2, DINOv3, timm, torchvision, open_clip, and of "
            "transformers' ViT, DINO, BEiT, CLIP and SigLIP models",
        )
    if key is not None:
        chosen = [root for root in roots if _has_key(root, key)]
        if not chosen:
            available = _choices(content, roots)
            raise CheckpointError(
                f"{path} has no network under {key!r}{_list('keys', available)}",
                "name one of these with --checkpoint-key"
                if available
                else "it holds one network on its top level: leave --checkpoint-key out",
            )
    else:
        chosen = preferred(roots)
    if len(chosen) > 1:
        raise CheckpointError(
            f"{path} holds {len(chosen)} networks{_list('roots', _named(chosen))}",
            "name one with --checkpoint-key",
        )
    root = chosen[0]
    unknown = [part for part in root.split(".")[:-1] if part not in WRAPPERS]
    if unknown and key is None:
        below = sum(name.startswith(root) for name in tensors)
        raise CheckpointError(
            f"{path}: 0 of {below} tensors matched, first missing: cls_token; their names begin "
            f"with {root!r}",
            f"if this is the network to show, give --checkpoint-key {root[:-1]}",
        )
    own = {name[len(root) :]: value for name, value in tensors.items() if name.startswith(root)}
    beside: dict[str, Tensor] = {}
    if len(roots) == 1:
        beside = {name: value for name, value in tensors.items() if not name.startswith(root)}
    return Network(own, key if key is not None else _distinguishing_key(root, content), beside)


def plain_name(name: str) -> str:
    """A tensor's name without what compilers and parallel wrappers insert."""
    return _INSERTED.sub("", name)


def _flatten(content: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Tensor]]:
    for name, value in content.items():
        if not isinstance(name, str):
            continue
        if is_tensor(value):
            yield above + name, value
        elif isinstance(value, Mapping):
            yield from _flatten(value, f"{above}{name}.")


def _has_key(root: str, key: str) -> bool:
    return f".{key.strip('.')}." in f".{root}"


def preferred(roots: list[str]) -> list[str]:
    """The roots of the averaged network, or else all that are not a student's."""
    for role in (*ROLES, None):
        if role is None:
            matching = [root for root in roots if not STUDENTS.intersection(root.split("."))]
        else:
            matching = [root for root in roots if role.intersection(root.split("."))]
        if matching:
            return matching
    return roots


def _distinguishing_key(root: str, content: Mapping[str, Any]) -> str | None:
    parts = root.split(".")[:-1]
    for words in (*ROLES, STUDENTS):
        for part in parts:
            if part in words:
                return part
    first = parts[0] if parts else None
    return first if first in content else None


def _keys(content: Mapping[Any, Any]) -> list[str]:
    return [str(name) for name in content]


def _choices(content: Mapping[Any, Any], roots: list[str]) -> list[str]:
    nested = [str(name) for name, value in content.items() if isinstance(value, Mapping)]
    return list(dict.fromkeys([*nested, *(root[:-1] for root in roots if root)]))


def _named(roots: list[str]) -> list[str]:
    return [root[:-1] or "(top level)" for root in roots]


def _list(label: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f" ({label}: {', '.join(names[:_SHOWN])}{more})"
