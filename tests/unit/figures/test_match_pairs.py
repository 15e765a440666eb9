"""Which pairs the histogram of a correspondence figure counts as drawn."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from attnviz.figures.match import pairs_drawn


def test_pairs_of_the_same_cosine_are_counted_once_each():
    maps = SimpleNamespace(
        mutual_cosine=np.array([0.5, 0.9, 0.9, 0.9, 0.7], np.float32),
        # The last is not mutual; the third is outside the masks, and no pair of the histogram.
        cells=np.array([[0, 1], [0, 2], [3, 3], [4, 4]]),
        cosine=np.array([0.9, 0.9, 0.2, 0.7], np.float32),
        mutual=np.array([True, True, True, False]),
    )
    assert pairs_drawn(maps).tolist() == [False, True, True, False, False]


def test_a_cell_that_is_asked_twice_is_one_pair():
    maps = SimpleNamespace(
        mutual_cosine=np.array([0.9, 0.9], np.float32),
        cells=np.array([[1, 1], [1, 1]]),
        cosine=np.array([0.9, 0.9], np.float32),
        mutual=np.array([True, True]),
    )
    assert pairs_drawn(maps).tolist() == [True, False]
