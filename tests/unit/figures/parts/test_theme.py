"""Numbers, names and colours as they stand in figures."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from attnviz.figures.parts import theme

MACHADO = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
    "normal vision": np.eye(3).tolist(),
}
"""Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB."""


def _oklab(linear):
    to_cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    return np.cbrt(np.clip(linear, 0, 1) @ np.array(to_cones).T) @ np.array(to_lab).T


@pytest.mark.parametrize("vision", MACHADO)
@pytest.mark.parametrize(("heads", "least"), [(6, 0.07), (12, 0.07), (24, 0.05)])
def test_head_colours_differ_for_every_kind_of_colour_vision(vision, heads, least):
    rgb = np.array([theme.rgb_of(theme.head_colour(head)) for head in range(heads)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lab = _oklab(linear @ np.array(MACHADO[vision]).T)
    assert min(np.linalg.norm(a - b) for a, b in combinations(lab, 2)) > least


def test_colours_repeat_only_after_24_heads():
    assert len({theme.head_colour(head) for head in range(24)}) == 24
    assert theme.head_colour(24) == theme.head_colour(0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.0123, "0.012"),
        (0.00123, "0.0012"),
        (0.000998, "0.0010"),
        (0.00028, "2.8e-4"),
        (1.0, "1.0"),
        (5.87, "5.9"),
        (123.4, "123"),
        (250000.0, "2.5e5"),
        (-0.05, "-0.050"),
    ],
)
def test_number(value, text):
    assert theme.number(value) == text


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.0, 0.2, ("0", "0.20")),
        (1e-6, 0.023, ("0", "0.023")),
        (0.0013, 0.0069, ("0.0013", "0.0069")),
        (0.00011, 0.0025, ("1e-4", "0.0025")),
        (0.0121, 0.0124, ("0.01210", "0.01240")),
        (4.3, 4.98, ("4.30", "4.98")),
        (3.88853, 3.88921, ("3.88853", "3.88921")),
        (-0.0489, 1.0, ("-0.05", "1.00")),
        (-1e-9, 1.0, ("0", "1.0")),
        (0.0, 1.0, ("0", "1.0")),
        (-1.0, 0.0, ("-1.0", "0")),
        (1e-5, 0.000998, ("0", "0.0010")),
        (-0.996, 0.9999995, ("-1.0", "1.0")),
        (-10.2, 8.9, ("-10", "9")),
        (5.0, 99.6, ("5.0", "99.6")),
        (0.04, 1.0, ("0.04", "1.00")),
        (0.0004, 0.027, ("0", "0.027")),
    ],
)
def test_number_pair(low, high, texts):
    assert theme.number_pair(low, high) == texts


def test_share():
    assert [theme.share(x) for x in (0.0, 0.0004, 0.0312, 0.42, 0.9962, 0.9999, 1 - 1e-7, 1.0)] == [
        "0.0 %",
        "< 0.1 %",
        "3.1 %",
        "42 %",
        "99.6 %",
        "> 99.9 %",
        "100 %",
        "100 %",
    ]


def test_printable_keeps_what_the_font_has():
    assert theme.printable("naïve_$x^{2}%_Ω.png") == "naïve_$x^{2}%_Ω.png"
    assert theme.printable("a\u0378b\n\udcff") == "a□b□□"
    assert theme.printable("e\u0301") == "é"


def test_shortened_keeps_both_ends_and_fits():
    name = "a_very_long_name_of_a_photograph_0001.jpg"
    short = theme.shorten(name, 1.2)
    assert theme.text_width(short) <= 1.2
    assert short.startswith("a_")
    assert short.endswith(".jpg")
    assert theme.shorten("cat.jpg", 1.2) == "cat.jpg"


def test_wrapped_lines_fit_and_lose_nothing():
    parts = ["dino_vits8", "layer 11 of 0-11", "one two three four five six seven eight nine ten"]
    lines = theme.wrap(parts, 1.4)
    assert all(theme.text_width(line) <= 1.4 for line in lines)
    assert " ".join(lines).replace(" · ", " ") == " ".join(parts)
