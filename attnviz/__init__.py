"""Exact attention figures of self-supervised Vision Transformers.

``attnviz.api`` is the Python interface; its functions are names of this package as well. They are
imported when first used, so that the command line starts without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnviz._version import __version__

if TYPE_CHECKING:
    from attnviz.api import (
        compute_maps,
        draw,
        faithful,
        features,
        heads,
        layers,
        load_model,
        matrix,
        patch,
        prepare,
        qkv,
        read,
        relevance,
        rollout,
        score,
    )
    from attnviz.watch import Watch

__all__ = [
    "Watch",
    "__version__",
    "compute_maps",
    "draw",
    "faithful",
    "features",
    "heads",
    "layers",
    "load_model",
    "matrix",
    "patch",
    "prepare",
    "qkv",
    "read",
    "relevance",
    "rollout",
    "score",
]


def __getattr__(name: str) -> Any:
    if name == "Watch":
        return import_module("attnviz.watch").Watch
    if name in __all__:
        return getattr(import_module("attnviz.api"), name)
    raise AttributeError(f"module 'attnviz' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
