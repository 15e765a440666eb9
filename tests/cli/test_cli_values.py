from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.domain import Percentile, Size
from attnviz.domain import parse as values
from attnviz.errors import UsageError
from attnviz.figures.parts.colour_maps import check_cmap


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("0", (0,)),
        ("-1", (-1,)),
        ("0,2", (0, 2)),
        ("2, 0", (2, 0)),
        ("-1,-2", (-1, -2)),
        ("0-3", (0, 1, 2, 3)),
        ("-4--1", (-4, -3, -2, -1)),
        ("0,5-7,-1", (0, 5, 6, 7, -1)),
        ("+3", (3,)),
    ],
)
def test_lists_of_layers_and_heads(text: str, indices: tuple[int, ...]) -> None:
    assert values.parse_indices("--heads", text) == indices


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither a number nor a range"),
        ("a", "'a' is neither"),
        ("0,,2", "'' is neither"),
        ("1.5", "'1.5' is neither"),
        ("3-1", "backwards"),
        ("0--1", "mixes"),
        ("-1-2", "mixes"),
        ("1-2-3", "neither"),
        ("\u0663", "neither"),
        ("9" * 30, "neither"),
        ("0-999999999", "neither"),
    ],
)
def test_lists_that_are_none(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        values.parse_indices("--layers", text)
    assert str(caught.value).startswith("--layers: ")


def test_all_and_nothing_mean_every_one() -> None:
    assert values.optional_indices("--heads", None) is None
    assert values.optional_indices("--heads", "all") is None


@pytest.mark.parametrize("text", ["a", "", "1.0", "--", "1,2", "0x1"])
def test_a_layer_is_one_whole_number(text: str) -> None:
    with pytest.raises(UsageError, match=r"--layer: .* is not a layer number"):
        values.parse_index("--layer", text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (None, None),
        ("480", 480),
        ("480x640", Size(480, 640)),
        ("480X640", Size(480, 640)),
        ("480\u00d7640", Size(480, 640)),
        ("original", "original"),
        (" Original ", "original"),
    ],
)
def test_sizes(text: str | None, size: Any) -> None:
    assert values.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "0x8", "8x0", "-8", "4.5", "480x", "x480", "big", "1e3"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--size"):
        values.parse_size(text)


@pytest.mark.parametrize("text", ["auto", "cpu", "mps", "cuda", "cuda:0", "cuda:12", "CUDA:1"])
def test_devices(text: str) -> None:
    assert values.parse_device(text) == text.lower()


@pytest.mark.parametrize("text", ["gpu", "cuda:", "cuda:x", "cpu:0", ""])
def test_devices_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--device"):
        values.parse_device(text)


def test_counts() -> None:
    assert values.parse_count("--workers", "auto", least=0) is None
    assert values.parse_count("--workers", "0", least=0) == 0
    for text in ("0", "-1", "x", "1.5", ""):
        with pytest.raises(UsageError, match="a number from 1 up"):
            values.parse_count("--batch-size", text, least=1)


def test_widths() -> None:
    assert values.parse_width("column") == 3.35
    assert values.parse_width("page") == 7.0
    assert values.parse_width("5.5") == 5.5
    for text in ("wide", "0", "-3", "nan", "inf", "1e9"):
        with pytest.raises(UsageError, match="--width"):
            values.parse_width(text)


def test_limits() -> None:
    assert values.parse_limits("0,0.02") == (0.0, 0.02)
    assert values.parse_limits("-1,1") == (-1.0, 1.0)
    assert values.parse_limits("p1, P99.5") == (Percentile(1.0), Percentile(99.5))
    assert values.parse_limits("0,p99") == (0.0, Percentile(99.0))
    assert values.parse_limits("p2,1") == (Percentile(2.0), 1.0)
    for text in ("0", "1,0", "0,0", "0,nan", "a,b", "0,1,2", "p99,p1", "p-1,p50", "p1,p101", "p,1"):
        with pytest.raises(UsageError, match="--limits"):
            values.parse_limits(text)


def test_channels() -> None:
    assert values.parse_channels("--mean", "0.485,0.456,0.406") == (0.485, 0.456, 0.406)
    assert values.parse_channels("--mean", "0.5") == (0.5, 0.5, 0.5)
    for text in ("0.5,0.5", "a", "", "0,0,inf"):
        with pytest.raises(UsageError, match="--mean"):
            values.parse_channels("--mean", text)
    with pytest.raises(UsageError, match="above 0"):
        values.parse_channels("--std", "0.2,0,0.2", positive=True)


def test_patches_and_points() -> None:
    assert values.parse_cells(["3,7", "0,0"]) == ((3, 7), (0, 0))
    assert values.parse_points(["240,120.5"]) == ((240.0, 120.5),)
    for text in ("3", "3,7,1", "a,b", "3.5,7", ""):
        with pytest.raises(UsageError, match="--at"):
            values.parse_cells([text])
    for text in ("3", "a,b", "nan,3"):
        with pytest.raises(UsageError, match="--xy"):
            values.parse_points([text])


def test_model_sizes() -> None:
    assert values.parse_model_args(["depth=6", " heads = 3 "]) == {"depth": 6, "heads": 3}
    assert values.parse_model_args(["depth=6,heads=3", "patch=8"]) == {
        "depth": 6,
        "heads": 3,
        "patch": 8,
    }
    for text in ("depth", "depth=x", "=3", "depth=-1"):
        with pytest.raises(UsageError, match="--model-arg"):
            values.parse_model_args([text])
    with pytest.raises(UsageError, match="twice"):
        values.parse_model_args(["depth=6", "depth=7"])


@pytest.mark.parametrize(
    ("value", "inside"),
    [(0.0, True), (0.999, True), (1.0, False), (1.5, False), (-0.1, False), (math.nan, False)],
)
def test_ranges_are_closed_and_open_as_they_say(value: float, *, inside: bool) -> None:
    if inside:
        assert values.in_range("--discard-ratio", value, least=0, below=1) == value
        return
    with pytest.raises(UsageError, match="at least 0 and below 1"):
        values.in_range("--discard-ratio", value, least=0, below=1)


def test_infinity_is_never_in_range() -> None:
    with pytest.raises(UsageError):
        values.in_range("--threshold", math.inf, above=0)


def test_colour_maps() -> None:
    assert check_cmap("hot") == "hot"
    with pytest.raises(UsageError, match="no colour map") as caught:
        check_cmap("virids")
    assert "viridis" in caught.value.hint


@given(st.text(max_size=12))
@settings(max_examples=200, deadline=None)
def test_any_text_is_a_value_or_a_usage_error(text: str) -> None:
    parsers = (
        lambda: values.parse_index("--layer", text),
        lambda: values.parse_indices("--heads", text),
        lambda: values.parse_size(text),
        lambda: values.parse_device(text),
        lambda: values.parse_count("--workers", text, least=0),
        lambda: values.parse_width(text),
        lambda: values.parse_limits(text),
        lambda: values.parse_channels("--mean", text),
        lambda: values.parse_cells([text]),
        lambda: values.parse_points([text]),
        lambda: values.parse_model_args([text]),
    )
    for parse in parsers:
        with suppress(UsageError):
            parse()
