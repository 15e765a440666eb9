"""The table of docs/shapes.md against the arrays of real results."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import attnviz
from tests.helpers import kinds

PAGE = Path(__file__).resolve().parents[2] / "docs" / "shapes.md"
ROW = re.compile(
    r"^\| (`\w+`|all|) ?\| ([\w, ¹²³⁴⁵⁶⁷⁸⁹⁰]+?) \| (\([^|]*\)) \| (\w+) \| ", re.MULTILINE
)
LETTERS = {
    "D": 384,
    "L": 2,
    "H": 3,
    "P": 5,
    "gh": 4,
    "gw": 6,
    "N": 29,
    "Q": 4,
    "K": 2,
    "d": 128,
    "C": 8,
    "R": 9,
    "E": 5,
    "M": 3,
    "S": 21,
    "gh'": 2,
    "gw'": 6,
}
WITHOUT_HEADS = ("features", "discover", "match", "faithful")
"""Commands whose numbers are of no single head."""


def documented() -> dict[str, dict[str, tuple[tuple[int, ...], str]]]:
    """Command to its arrays: shape with numbers for letters, and type."""
    pages: dict[str, dict[str, tuple[tuple[int, ...], str]]] = {}
    command = ""
    for first, names, shape, kind in ROW.findall(PAGE.read_text(encoding="utf-8")):
        command = first.strip("`") or command
        letters = [letter.strip() for letter in shape.strip("()").split(",") if letter.strip()]
        sides = tuple(LETTERS[side] if side in LETTERS else int(side) for side in letters)
        for name in re.sub("[ ¹²³⁴⁵⁶⁷⁸⁹⁰]", "", names).split(","):
            pages.setdefault(command, {})[name] = (sides, kind)
    for name, arrays in pages.items():
        if name != "all":
            arrays.update(pages["all"])
    return pages


@pytest.mark.parametrize(
    "command",
    kinds.ALL,
)
def test_the_table_is_what_is_saved(command):
    model = attnviz.load_model(
        "dinov2_vits14_reg", random_weights=True, depth=LETTERS["L"], heads=LETTERS["H"]
    )
    pixels = np.random.default_rng(0).integers(0, 256, (56, 84, 3), dtype=np.uint8)
    image = attnviz.prepare(pixels, model, size="original")
    second = attnviz.prepare(pixels[:28], model, size="original")
    more = {
        "rollout": {"depths": (0,)},
        "relevance": {"like": pixels[:, ::-1].copy()},
        "matrix": {"whole": True},
        "score": {"lfe": True},
        "layers": {"sinks": True},
        "features": {"layer": 1, "foreground": True},
        "discover": {"method": "spectral"},
        "match": {"like": second, "cells": ((0, 0), (1, 1), (2, 2))},
    }
    function = getattr(attnviz, command)
    saved = function(model, image, **more.get(command, {})).arrays()
    if command == "discover":  # the page lists the arrays of all methods
        saved |= function(model, image, method="lost").arrays()
    expected = documented()[command]
    if command == "match":  # as many as there are mutual pairs
        assert saved["mutual_cosine"].ndim == 1
        expected["mutual_cosine"] = (saved["mutual_cosine"].shape, "float32")
    expected.pop("meta")  # added when the file is written
    if command in WITHOUT_HEADS:
        expected.pop("heads")
    types = {name: "text" if a.dtype.kind == "U" else a.dtype.name for name, a in saved.items()}
    assert {name: (array.shape, types[name]) for name, array in saved.items()} == expected
