"""What the files of a checkpoint state about the model, read without torch."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from attnviz.domain import ModelInfo, Positions, Size
from attnviz.models.weights.locate import locate, title_of
from attnviz.models.weights.text import read_json
from attnviz.storage import Address

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from attnviz.domain.requests import ModelRequest

_MANY_HEADS = 2**16
"""Where the number is not stated: more than any model has."""

_BLOCK = re.compile(r"^(.*?)(?:blocks|layers|layer|resblocks)\.(\d+)\.(?:(\d+)\.)?")
"""The prefix and the number of a block; the second number is that of a block in a chunk."""


def stated_info(request: ModelRequest, names: Sequence[str]) -> ModelInfo | None:
    """What a checkpoint on this machine states about its model, or None.

    names: of its tensors. A config.json in the layout of transformers comes first. What neither
    says is set so that nothing is refused for it.

    Raises:
        UsageError: No such path, or a folder without config.json or weights.
        CheckpointError: A config.json that cannot be read.
    """
    path = request.checkpoint
    if path is None or isinstance(path, Address) or request.args:
        return None
    _, config_path = locate(path)
    sizes = {} if config_path is None else _of_config(read_json(config_path))
    sizes = sizes or {"depth": depth_of(names)}
    if not sizes.get("depth"):
        return None
    return _info(title_of(path, configured=config_path is not None), sizes)


def depth_of(names: Iterable[str]) -> int | None:
    """The number of blocks by the names of the tensors; None where networks differ in it."""
    depths: dict[str, int] = {}
    for name in names:
        block = _BLOCK.match(name)
        if block is not None:
            number = 1 + int(block[3] or block[2])
            depths[block[1]] = max(number, depths.get(block[1], 0))
    different = set(depths.values())
    return different.pop() if len(different) == 1 else None


def _of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of a model of transformers; empty for configs of another kind."""
    part = config.get("vision_config", config)
    if "model_type" not in config or not isinstance(part, dict):
        return {}
    named = {
        "depth": part.get("num_hidden_layers"),
        "heads": part.get("num_attention_heads"),
        "patch": part.get("patch_size"),
    }
    return {name: size for name, size in named.items() if type(size) is int and size > 0}


def _info(name: str, sizes: Mapping[str, Any]) -> ModelInfo:
    patch = sizes.get("patch", 1)
    return ModelInfo(
        name=name,
        timm_name="",
        patch=patch,
        width=1,
        depth=sizes["depth"],
        heads=sizes.get("heads", _MANY_HEADS),
        prefix=1,
        registers=0,
        has_cls=True,
        native_size=Size(patch, patch),
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        interpolation="bicubic",
        positions=Positions.ORIGINAL,
        weights="",
        classes=sys.maxsize,
    )
