"""The page: a template, a style sheet, scripts, and one block of data per layer, in one file.

It loads nothing from elsewhere, and its content security policy forbids that. Whatever comes from
outside (file names above all) is text: escaped here, set as text content by the scripts.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from attnviz.domain import DEFAULT_ALPHA
from attnviz.domain.overlay import overlay_weight
from attnviz.explorer.packing import compress, pack
from attnviz.explorer.picture import data_address, seen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attnviz.domain import ByteArray, LayerFactors, ModelInfo, Provenance, RolloutMaps

CMAPS = ("inferno", "viridis", "magma", "cividis", "gray", "hot")
"""Colour maps that a page offers: perceptually uniform ones, grey, and the older figures' hot."""

SCRIPTS = (
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

VERSION = 1
"""Version of the format of a page's data."""


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
    style, script = _source("explore.css"), _scripts()
    data = [_block("facts", _json(facts), "application/json")]
    data.append(_block("record", content.record.replace("<", "\\u003c"), "application/json"))
    data += [_block(name, text, "text/plain") for name, text in blocks.items()]
    text = Template(_source("template.html")).substitute(
        title=html.escape(f"{_readable(content.name)} - attention explorer"),
        policy=html.escape(policy(style, script)),
        style=style,
        script=script,
        data="\n".join(data),
    )
    return text.encode("utf-8")


def policy(style: str, script: str) -> str:
    """The content security policy: this style sheet, this script, images in the page; no more."""
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def token_names(info: ModelInfo) -> list[str]:
    """The names of the prefix tokens, in order."""
    names = ["CLS"] if info.has_cls else []
    names += ["DIST"] * (info.prefix - info.registers - len(names))
    return names + [f"R{number}" for number in range(1, info.registers + 1)]


def _facts(content: PageContent) -> tuple[dict[str, Any], dict[str, str]]:
    """What the scripts read at the start, and the compressed blocks that they read when needed."""
    info = content.provenance.model
    layers = content.layers.values()
    blocks = {f"layer-{i}": _base64(pack(layer)) for i, layer in content.layers.items()}
    if content.rollout is not None:
        prefix = content.rollout.at_depth_prefix
        patches = content.rollout.at_depth.reshape(prefix.shape[0], -1)
        rows = np.ascontiguousarray(np.concatenate([prefix, patches], axis=1), "<f4")  # K, N
        blocks["rollout"] = _base64(compress(rows.tobytes()))
    image = seen(content.pixels, content.provenance.geometry)
    facts = {
        "version": VERSION,
        "name": _readable(content.name),
        "model": ", ".join([info.title, *(["mean and std assumed"] * info.statistics_assumed)]),
        "random": info.random_weights,
        "grid": list(content.provenance.geometry.grid),
        "prefix": token_names(info),
        "heads": next(iter(layers)).query.shape[1],
        "layers": list(content.layers),
        "depth": info.depth,
        "ranks": [layer.query.shape[0] for layer in layers],
        "steps": [layer.step for layer in layers],
        "rollout": _rollout_facts(content.rollout),
        "picture": {"width": image.width, "height": image.height, "address": data_address(image)},
        "cmaps": {name: _base64(_table(name)) for name in CMAPS},
        "overlay": {"alpha": DEFAULT_ALPHA, "weights": _overlay_weights()},
    }
    return facts, blocks


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


def _table(name: str) -> bytes:
    """A colour map as 256 triples of red, green, blue, one byte each."""
    colours = np.asarray(mpl.colormaps[name](np.arange(256) / 255, bytes=True))
    return np.ascontiguousarray(colours[:, :3]).tobytes()


def _overlay_weights() -> list[float]:
    """The weight of each of the 256 colours over the image, at full opacity."""
    levels = np.linspace(0, 1, 256, dtype=np.float32)
    return [round(weight, 5) for weight in overlay_weight(levels, 1.0).tolist()]


def _source(name: str) -> str:
    return files("attnviz.explorer").joinpath("web", name).read_text(encoding="utf-8")


def _scripts() -> str:
    """All scripts as one, in a scope of their own."""
    parts = [_source(name) for name in SCRIPTS]
    return "\n".join(('"use strict";', "{", *parts, "}", ""))


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _json(value: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element: no ``<``, so no end tag and no comment."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _block(name: str, text: str, kind: str) -> str:
    return f'<script type="{kind}" id="{name}">{text}</script>'


def _readable(name: str) -> str:
    """The name without what no font shows: control characters, and bytes that are not text."""
    return "".join(_characters(name))


def _characters(name: str) -> Iterator[str]:
    for character in name:
        yield character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
