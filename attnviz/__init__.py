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
        discover,
        draw,
        draw_registers,
        explore,
        faithful,
        features,
        heads,
        layers,
        load_model,
        match,
        matrix,
        patch,
        prepare,
        prepare_batch,
        qkv,
        read,
        registers,
        relevance,
        rollout,
        score,
        wrap,
    )
    from attnviz.cli.python_run import run
    from attnviz.watch import Watch

__all__ = [
    "Watch",
    "__version__",
    "compute_maps",
    "discover",
    "draw",
    "draw_registers",
    "explore",
    "faithful",
    "features",
    "heads",
    "layers",
    "load_model",
    "match",
    "matrix",
    "patch",
    "prepare",
    "prepare_batch",
    "qkv",
    "read",
    "registers",
    "relevance",
    "rollout",
    "run",
    "score",
    "wrap",
]

_ELSEWHERE = {"Watch": "attnviz.watch", "run": "attnviz.cli.python_run"}
"""Names that are not of ``attnviz.api``."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(_ELSEWHERE.get(name, "attnviz.api")), name)
    raise AttributeError(f"module 'attnviz' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
