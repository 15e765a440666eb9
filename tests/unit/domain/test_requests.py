"""Requests of programs hold the same values as those of the command line."""

from __future__ import annotations

import numpy as np
import pytest

from attnviz.domain import Size
from attnviz.domain.options import request_options
from attnviz.domain.requests import InputRequest
from attnviz.errors import UsageError


@pytest.mark.parametrize("size", [(96, 64), [96, 64], np.array([96, 64]).tolist(), Size(96, 64)])
def test_a_pair_is_height_and_width_and_recorded_as_on_the_command_line(size):
    inputs = InputRequest(("a.png",), size=size)
    assert inputs == InputRequest(("a.png",), size=Size(96, 64))
    assert isinstance(inputs.size, Size)
    assert request_options(inputs)["size"] == "96x64"


@pytest.mark.parametrize(("size", "written"), [(96, "96"), ("original", "original")])
def test_other_sizes_stay_as_they_are(size, written):
    assert InputRequest((), size=size).size == size
    assert request_options(InputRequest((), size=size))["size"] == written
    assert InputRequest((), size=None).size is None


@pytest.mark.parametrize("size", [(96,), (96, 64, 3), 96.5, "96x64", (96, 6.5)])
def test_anything_else_is_refused(size):
    with pytest.raises(UsageError, match="is not a size"):
        InputRequest((), size=size)
