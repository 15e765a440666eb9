"""``--bands`` and ``--range`` as they are written."""

from __future__ import annotations

import pytest

from attnviz.domain.options import request_options
from attnviz.domain.parse import parse_bands, parse_range
from attnviz.domain.requests import InputRequest, ModelRequest
from attnviz.errors import UsageError


@pytest.mark.parametrize(
    ("text", "bands"),
    [(None, None), ("3,2,1", (3, 2, 1)), (" 8 , 4, 3", (8, 4, 3)), ("4", (4, 4, 4))],
)
def test_bands(text, bands):
    assert parse_bands(text) == bands


@pytest.mark.parametrize("text", ["", "0", "3,2", "3,2,1,4", "a,b,c", "-1,2,3", "1.0,2,3", "3,,1"])
def test_what_is_not_a_choice_of_bands_is_named(text):
    with pytest.raises(UsageError, match=r"--bands: .* is not a choice of bands") as caught:
        parse_bands(text)
    assert "3,2,1" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "value_range"),
    [
        (None, None),
        ("auto", "auto"),
        (" AUTO ", "auto"),
        ("0,4095", (0.0, 4095.0)),
        ("-5,0.5", (-5.0, 0.5)),
    ],
)
def test_range(text, value_range):
    assert parse_range(text) == value_range


@pytest.mark.parametrize("text", ["", "4095", "0,1,2", "a,b", "nan,1", "0,inf", "5,5", "5,1"])
def test_what_is_not_a_range_is_named(text):
    with pytest.raises(UsageError, match="--range"):
        parse_range(text)


@pytest.mark.parametrize("text", ["auto", "0,4095", "-5,0.5"])
def test_the_record_says_bands_and_range_as_they_can_be_written_again(text):
    inputs = InputRequest((), bands=parse_bands("3,2,1"), value_range=parse_range(text))
    options = request_options(ModelRequest(), inputs)
    assert parse_bands(options["bands"]) == (3, 2, 1)
    assert parse_range(options["range"]) == parse_range(text)
    options = request_options(ModelRequest(), InputRequest(()))
    assert not {"bands", "range"} & options.keys()
