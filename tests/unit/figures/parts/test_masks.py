"""Mass masks and their outlines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnviz.domain.mass_mask import mass_mask
from attnviz.errors import UsageError
from attnviz.figures.parts.masks import mask_outline


def _kept(values, threshold):
    return mass_mask(np.array(values, np.float32), threshold).tolist()


def test_the_worked_example():
    assert _kept([0.4, 0.3, 0.2, 0.1], 0.6) == [True, True, False, False]
    assert _kept([0.1, 0.2, 0.3, 0.4], 0.6) == [False, False, True, True]


def test_a_mass_that_is_reached_exactly_needs_no_further_cell():
    assert _kept([0.4, 0.3, 0.2, 0.1], 0.7) == [True, True, False, False]
    assert _kept([0.4, 0.3, 0.2, 0.1], 0.4) == [True, False, False, False]


def test_values_are_renormalised():
    assert _kept([0.04, 0.03, 0.02, 0.01], 0.6) == [True, True, False, False]


def test_all_mass_leaves_out_only_zeros():
    assert _kept([0.5, 0.0, 0.5], 1.0) == [True, False, True]


def test_nothing_to_keep():
    assert _kept([0.0, 0.0], 0.6) == [False, False]


@pytest.mark.parametrize("threshold", [0.0, -0.1, 1.01, float("nan")])
def test_a_threshold_that_is_no_share_is_refused(threshold):
    with pytest.raises(UsageError, match="share"):
        mass_mask(np.ones(3, np.float32), threshold)


@settings(deadline=None, max_examples=50)
@given(arrays(np.float32, (3, 4), elements=st.floats(0.015625, 1, width=32)), st.floats(0.01, 1))
def test_it_is_the_smallest_set_that_holds_the_mass(values, threshold):
    kept = mass_mask(values, threshold)
    total = values.sum(dtype=np.float64)
    held = values[kept].sum(dtype=np.float64)
    assert held >= threshold * total - 1e-6
    assert held - values[kept].min() < threshold * total + 1e-6
    assert kept.all() or values[kept].min() >= values[~kept].max()


def test_outline_of_one_cell():
    mask = np.zeros((3, 4), bool)
    mask[1, 2] = True
    runs = {tuple(map(tuple, run.tolist())) for run in mask_outline(mask)}
    assert runs == {
        ((2.0, 1.0), (3.0, 1.0)),
        ((2.0, 2.0), (3.0, 2.0)),
        ((2.0, 1.0), (2.0, 2.0)),
        ((3.0, 1.0), (3.0, 2.0)),
    }


def test_outline_joins_edges_to_long_runs_and_closes_at_the_border():
    assert len(mask_outline(np.ones((3, 4), bool))) == 4
    assert mask_outline(np.zeros((3, 4), bool)) == []


@settings(deadline=None, max_examples=30)
@given(arrays(np.bool_, (4, 5)))
def test_outline_is_as_long_as_the_mask_s_circumference(mask):
    length = sum(abs(run[1] - run[0]).sum() for run in mask_outline(mask))
    padded = np.pad(mask, 1).astype(int)
    assert length == np.abs(np.diff(padded, axis=0)).sum() + np.abs(np.diff(padded, axis=1)).sum()
