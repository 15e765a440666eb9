"""The Python interface: load a model, prepare images, get maps as arrays, draw a figure.

    import attnviz

    model = attnviz.load_model("dino_vits8")
    maps = attnviz.heads(model, "cat.jpg", layer=-1)
    maps.attention.shape                     # (H, gh, gw)
    maps                                     # shows the figure, as the last line of a cell
    maps.save("cat.heads.pdf")

The command line does its work through the same functions.
"""

from __future__ import annotations

from attnviz.api.attention_functions import (
    compute_maps,
    heads,
    layers,
    matrix,
    patch,
    rollout,
    score,
)
from attnviz.api.drawing import draw, draw_registers, explore, registers
from attnviz.api.inputs import load_model, prepare, prepare_batch, read, wrap
from attnviz.api.output_functions import faithful, relevance
from attnviz.api.token_functions import discover, features, match, qkv

__all__ = [
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
    "score",
    "wrap",
]
