"""timm's config.json: the architecture, its arguments, and how images are prepared for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnviz.domain import Size
from attnviz.errors import CheckpointError
from attnviz.models.weights.inferred import Preprocessing
from attnviz.models.weights.preprocessor import three

_OURS = frozenset(
    {
        *("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir"),
        *("num_classes", "dynamic_img_size", "strict_img_size", "features_only", "device", "dtype"),
        *("scriptable", "exportable", "no_jit", "in_chans"),
    }
)
"""Arguments that do not describe the network, or that the loader sets itself."""


@dataclass(frozen=True)
class TimmConfig:
    """What a timm config.json says.

    ``arguments``: keyword arguments of the architecture, as timm passes them. ``preprocessing``:
    None where the config is silent. ``sizes``: input sizes in pixels that the stored positions may
    have, the most trusted first.
    """

    architecture: str
    tag: str
    arguments: dict[str, Any]
    preprocessing: Preprocessing | None
    sizes: tuple[Size, ...]

    @property
    def name(self) -> str:
        """``architecture.tag``, as timm spells it."""
        return f"{self.architecture}.{self.tag}" if self.tag else self.architecture


def read_timm_config(config: Mapping[str, Any], path: Path) -> TimmConfig | None:
    """Timm's part of a config.json; None where it is not timm's.

    Raises:
        CheckpointError: ``model_args`` is not an object.
    """
    architecture = config.get("architecture")
    if not isinstance(architecture, str):
        return None
    # Configs of old versions of timm hold the fields of pretrained_cfg themselves.
    details = config.get("pretrained_cfg", config)
    details = details if isinstance(details, Mapping) else {}
    arguments = config.get("model_args") or {}
    if not isinstance(arguments, Mapping):
        raise CheckpointError(f"{path}: model_args is not a JSON object")
    architecture, _, tag = architecture.partition(".")
    given = details.get("tag")
    sizes = [_pixels(arguments.get("img_size")), _input_size(details.get("input_size"))]
    stated = tuple(dict.fromkeys(size for size in sizes if size is not None))
    return TimmConfig(
        architecture,
        str(given) if isinstance(given, str) and given else tag,
        {name: _tuples(value) for name, value in arguments.items() if name not in _OURS},
        _preprocessing(details, stated[0] if stated else None),
        stated,
    )


def _preprocessing(details: Mapping[str, Any], size: Size | None) -> Preprocessing | None:
    try:
        return Preprocessing(
            three(details["mean"]),
            three(details["std"]),
            str(details.get("interpolation", "bicubic")),
            size,
        )
    except (KeyError, TypeError, ValueError):
        return None


def _input_size(value: Any) -> Size | None:
    return _pixels(value[1:]) if isinstance(value, list | tuple) and len(value) == 3 else None


def _pixels(value: Any) -> Size | None:
    sides = list(value) if isinstance(value, list | tuple) else [value, value]
    if len(sides) == 2 and all(type(side) is int and 0 < side < 1 << 16 for side in sides):
        return Size(sides[0], sides[1])
    return None


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
