"""The page of one image: the queries and keys behind its attention, a block per layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.explorer.document import VERSION, display_facts, document, readable
from attnviz.explorer.packing import compress, pack, pack_bias
from attnviz.explorer.picture import data_address, seen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnviz.domain import ByteArray, LayerFactors, ModelInfo, Provenance, RolloutMaps

SCRIPTS = (
    "common.js",
    "data.js",
    "attention.js",
    "state.js",
    "panels.js",
    "view.js",
    "statistics.js",
    "controls.js",
    "input.js",
    "save.js",
    "main.js",
)
"""In the order of the page: ``main.js``, the last, starts the page."""


@dataclass(frozen=True, eq=False)
class PageContent:
    """What a page shows.

    layers: each layer's queries and keys, by its index in the model; at least one.
    rollout: up to each of these layers; None for a page without.
    pixels: (height, width, 3) uint8, RGB, of the original image. name: of the image, as text.
    record: how the page was made, as one line of JSON.
    """

    layers: Mapping[int, LayerFactors]
    rollout: RolloutMaps | None
    pixels: ByteArray
    name: str
    provenance: Provenance
    record: str


def page(content: PageContent) -> bytes:
    """The whole file, in UTF-8."""
    facts, blocks = _facts(content)
    title = f"{readable(content.name)} - attention explorer"
    return document("template.html", SCRIPTS, title, facts, content.record, blocks)


def token_names(info: ModelInfo) -> list[str]:
    """The names of the prefix tokens, in order."""
    names = ["CLS"] if info.has_cls else []
    names += ["DIST"] * (info.prefix - info.registers - len(names))
    return names + [f"R{number}" for number in range(1, info.registers + 1)]


def _facts(content: PageContent) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What the scripts read at the start, and the compressed blocks that they read when needed."""
    info = content.provenance.model
    layers = content.layers.values()
    blocks = {f"layer-{i}": pack(layer) for i, layer in content.layers.items()}
    biases = {i: layer.bias for i, layer in content.layers.items() if layer.bias is not None}
    blocks |= {f"bias-{i}": pack_bias(bias) for i, bias in biases.items()}
    if content.rollout is not None:
        prefix = content.rollout.at_depth_prefix
        patches = content.rollout.at_depth.reshape(prefix.shape[0], -1)
        rows = np.ascontiguousarray(np.concatenate([prefix, patches], axis=1), "<f4")  # K, N
        blocks["rollout"] = compress(rows.tobytes())
    image = seen(content.pixels, content.provenance.geometry)
    facts = {
        "version": VERSION,
        "name": readable(content.name),
        "model": ", ".join([info.title, *info.remarks, *_overlap(content.provenance)]),
        "random": info.random_weights,
        "grid": list(content.provenance.geometry.grid),
        "prefix": token_names(info),
        "heads": next(iter(layers)).query.shape[1],
        "layers": list(content.layers),
        "depth": info.depth,
        "ranks": [layer.query.shape[0] for layer in layers],
        "steps": [layer.step for layer in layers],
        "biases": list(biases),
        "rollout": _rollout_facts(content.rollout),
        "picture": {"width": image.width, "height": image.height, "address": data_address(image)},
        **display_facts(),
    }
    return facts, blocks


def _overlap(provenance: Provenance) -> list[str]:
    """How far apart the patches are where they overlap, and what of the image has no cell."""
    if provenance.model.stride is None:
        return []
    edge = f"{provenance.geometry.edge:g} input px at the edges have no cell and are not shown"
    return [provenance.model.patches_text, edge]


def _rollout_facts(rollout: RolloutMaps | None) -> dict[str, Any] | None:
    if rollout is None:
        return None
    options = rollout.options
    return {
        "depths": list(rollout.depths),
        "query": str(rollout.query),
        "fusion": options.fusion.value,
        "residual": options.residual,
        "discard": options.discard_ratio,
    }
