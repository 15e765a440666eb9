"""The packaged tables of colour maps are matplotlib's."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest

from attnviz.domain import DEFAULT_CMAP
from attnviz.domain.colour_maps import PACKAGED, colour_table
from attnviz.explorer.document import CMAPS


@pytest.mark.parametrize("name", PACKAGED)
def test_a_table_is_that_of_matplotlib(name):
    expected = mpl.colormaps[name](np.arange(256) / 255, bytes=True)[:, :3]
    np.testing.assert_array_equal(colour_table(name), expected)


def test_those_that_are_offered_by_default_are_among_them():
    assert {DEFAULT_CMAP, *CMAPS} <= set(PACKAGED)
