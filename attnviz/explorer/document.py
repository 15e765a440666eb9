"""What every page is put together from: a template, a style sheet, scripts, and blocks of data.

A page loads nothing from elsewhere, and its content security policy forbids that. Whatever comes
from outside (file names above all) is text: escaped here, set as text content by the scripts.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.domain import DEFAULT_ALPHA
from attnviz.domain.colour_maps import colour_table
from attnviz.domain.overlay import overlay_weight

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from attnviz.domain import ModelInfo

CMAPS = ("inferno", "viridis", "magma", "cividis", "gray", "hot")
"""Colour maps that a page offers: perceptually uniform ones, grey, and the older figures' hot."""

VERSION = 1
"""Version of the format of a page's data."""


def document(
    template: str,
    scripts: Sequence[str],
    title: str,
    facts: Mapping[str, Any],
    record: str,
    blocks: Mapping[str, bytes],
) -> bytes:
    """The whole file, in UTF-8.

    template, scripts: names of files of ``web``; the last script starts the page. record: how the
    page was made, as one line of JSON. blocks: compressed data by the identifier of its element.
    """
    style, script = _source("explore.css"), _joined(scripts)
    data = [_block("facts", json_text(facts), "application/json")]
    data.append(_block("record", record.replace("<", "\\u003c"), "application/json"))
    data += [_block(name, base64_text(block), "text/plain") for name, block in blocks.items()]
    text = Template(_source(template)).substitute(
        title=html.escape(title),
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


def display_facts() -> dict[str, Any]:
    """The facts about colours, of every page."""
    return {
        "cmaps": {name: base64_text(colour_table(name).tobytes()) for name in CMAPS},
        "overlay": {"alpha": DEFAULT_ALPHA, "weights": _overlay_weights()},
    }


def model_name(info: ModelInfo) -> str:
    """What the model is called, and what was assumed of it."""
    return ", ".join([info.title, *info.remarks])


def base64_text(data: bytes) -> str:
    """Bytes as text."""
    return base64.b64encode(data).decode("ascii")


def json_text(value: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element: no ``<``, so no end tag and no comment."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def readable(name: str) -> str:
    """The name without what no font shows: control characters, and bytes that are not text."""
    return "".join(_characters(name))


def _characters(name: str) -> Iterator[str]:
    for character in name:
        yield character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"


def _overlay_weights() -> list[float]:
    """The weight of each of the 256 colours over the image, at full opacity."""
    levels = np.linspace(0, 1, 256, dtype=np.float32)
    return [round(weight, 5) for weight in overlay_weight(levels, 1.0).tolist()]


def _source(name: str) -> str:
    return files("attnviz.explorer").joinpath("web", name).read_text(encoding="utf-8")


def _joined(scripts: Sequence[str]) -> str:
    """Scripts as one, in a scope of their own."""
    parts = [_source(name) for name in scripts]
    return "\n".join(('"use strict";', "{", *parts, "}", ""))


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _block(name: str, text: str, kind: str) -> str:
    return f'<script type="{kind}" id="{name}">{text}</script>'
