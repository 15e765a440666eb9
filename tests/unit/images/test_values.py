"""Numbers to 8 bits: the stated range, the notes of dark images, and a range of the caller's."""

from __future__ import annotations

import re

import numpy as np
import pytest

from attnviz.errors import ImageError
from attnviz.images.values import to_bytes


def test_a_range_runs_from_0_to_255_and_clips() -> None:
    # (v - 100) / 500 * 255: 100 -> 0, 350 -> 127.5 -> 128 (even), 600 -> 255
    values = np.array([[0, 100, 350, 600, 9000]], np.uint16)
    eight = to_bytes(values, (100.0, 600.0))
    assert eight.values.tolist() == [[0, 0, 128, 255, 255]]
    assert eight.notes == ("values from 100 to 600 stretched to 0..255",)


def test_auto_runs_between_the_percentiles_of_all_bands() -> None:
    # 1 % of 400 values lies below, 1 % above: 4 and 395 of 0..399, whatever the outlier is.
    values = np.arange(400, dtype=np.uint16).reshape(10, 20, 2)
    values[-1, -1, -1] = 60_000
    eight = to_bytes(values, "auto")
    assert eight.notes == ("values from 4 to 395 (percentiles 1 and 99) stretched to 0..255",)
    expected = np.rint((np.clip(values, 4, 395) - 4.0) * 255 / 391)
    np.testing.assert_array_equal(eight.values, expected)


def test_auto_of_few_values_takes_their_ends_and_of_one_value_the_stated_range() -> None:
    few = np.zeros((20, 20), np.uint16)
    few[0, 0] = 500
    assert to_bytes(few, "auto").values.max() == 255
    same = np.full((3, 3), 514, np.uint16)
    assert to_bytes(same, "auto").values.tolist() == to_bytes(same, None).values.tolist()


@pytest.mark.parametrize(
    ("values", "note"),
    [
        (np.array([[0, 3060]], np.uint16), "0 to 3060, 4.7 % of 0..65535"),
        (np.array([[7, 1023]], np.uint16), "7 to 1023, 1.6 % of 0..65535"),
        (np.array([[0, 16383]], np.int32), "0 to 16383, 25 % of 0..65535"),
        (np.array([[0, 0.125]], np.float32), "0 to 0.125, 12 % of 0..1"),
        (np.array([[0, 1.5]], np.float32), "0 to 1.5, 0.59 % of 0..255"),
    ],
    ids=["reflectance", "10 bits", "14 bits", "float 0..1", "float above 1"],
)
def test_dark_numbers_are_said_with_the_option_that_stretches_them(values, note) -> None:
    (said,) = [each for each in to_bytes(values, None).notes if "drawn dark" in each]
    assert said.startswith(f"values run from {note}")
    high = note.split(",")[0].split()[-1]
    assert said.endswith(f"--range 0,{high} or --range auto stretches them")
    option = re.search(r"--range (\S+)", said)[1]
    stretched = to_bytes(values, tuple(map(float, option.split(","))))
    assert stretched.values.max() == 255


@pytest.mark.parametrize(
    "values",
    [
        np.array([[0, 16384]], np.uint16),
        np.array([[0, 65535]], np.uint16),
        np.array([[0.0, 0.3]], np.float32),
        np.array([[9, 9]], np.uint16),
        np.array([[0, 3]], np.uint8),
    ],
)
def test_numbers_that_use_their_range_pass_in_silence(values) -> None:
    assert not [note for note in to_bytes(values, None).notes if "dark" in note]


def test_twelve_bits_that_the_format_declares_are_all_of_its_range() -> None:
    eight = to_bytes(np.array([[0, 8, 9, 2048, 4095]], np.uint16), None, top=4095)
    # 8 * 255 / 4095 = 0.498, 9 -> 0.56, 2048 -> 127.53
    assert eight.values.tolist() == [[0, 0, 1, 128, 255]]
    assert eight.notes == ("12-bit grey, scaled by 255/4095",)


def test_nan_is_named_and_laid_on_white_only_under_a_range() -> None:
    values = np.array([[np.nan, 0.25], [0.5, 0.75]], np.float32)
    with pytest.raises(ImageError, match=r"NaN \(not a number\) in 25 % of its pixels") as caught:
        to_bytes(values, None)
    assert "the others run from 0.25 to 0.75" in str(caught.value)
    assert "--range 0,0.75 or --range auto" in caught.value.hint
    eight = to_bytes(values, (0.0, 1.0))
    assert eight.missing.tolist() == [[True, False], [False, False]]
    assert eight.notes[1] == "25 % of the pixels are NaN (not a number), laid on white"
    with pytest.raises(ImageError, match="all NaN"):
        to_bytes(np.full((2, 2), np.nan, np.float32), "auto")


@pytest.mark.parametrize(
    ("values", "message", "option"),
    [
        (np.array([[-5, 9]], np.int16), "integer values from -5 to 9", "--range=-5,9"),
        (np.array([[0, 70000]], np.uint32), "integer values from 0 to 70000", "--range 0,70000"),
        (np.array([[0.0, 3060.0]]), "float values from 0 to 3060", "--range 0,3060"),
        (np.array([[0.0, np.inf]]), "float values from 0 to inf", "--range MIN,MAX"),
    ],
)
def test_values_without_a_meaning_name_the_range_that_gives_them_one(
    values, message, option
) -> None:
    with pytest.raises(ImageError, match=message) as caught:
        to_bytes(values, None)
    assert caught.value.hint.startswith(f"{option} or --range auto")


def test_infinite_values_are_clipped_by_a_range() -> None:
    values = np.array([[-np.inf, 0.0, 1.0, np.inf]])
    assert to_bytes(values, (0.0, 1.0)).values.tolist() == [[0, 0, 255, 255]]
    assert to_bytes(values, "auto").values.tolist() == [[0, 0, 255, 255]]
