"""Where tokens stand along a matrix, and that no cell is lost between cells and pixels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.domain import Size
from attnviz.figures.parts.token_axis import TokenAxis, area_shares
from tests.figures import samples

REGISTERS = samples.model_info(prefix=5, registers=4)


def axis(grid=(3, 4), prefix=1, inches=3.0, run=1, model=None):
    high, wide = grid
    starts = prefix + np.arange(high)[:, None] * wide + np.arange(0, wide, run)
    edges = np.concatenate([np.arange(prefix), starts.ravel(), [prefix + high * wide]])
    model = model or samples.model_info(prefix=prefix, has_cls=prefix > 0)
    return TokenAxis(edges, Size(high, wide), model, inches)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300))
def test_every_cell_counts_alike_when_cells_are_small(cells, pixels):
    shares = area_shares(cells, pixels).astype(np.float64)
    assert shares.sum(axis=1) == pytest.approx(1, abs=1e-5)
    if cells >= pixels:
        assert shares.sum(axis=0) == pytest.approx(pixels / cells, abs=1e-5)
    else:
        assert set(np.unique(shares)) <= {0.0, 1.0}
        assert (shares.sum(axis=0) >= 1).all()


def test_shares_by_hand():
    assert area_shares(4, 2) == pytest.approx(np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]))
    thirds = [[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]]
    assert area_shares(3, 2) == pytest.approx(np.array(thirds))
    assert area_shares(2, 4).tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]


@pytest.mark.parametrize(("prefix", "pixels"), [(0, 40), (1, 40), (5, 40), (5, 7), (5, 900)])
def test_the_drawn_matrix_keeps_the_mean_of_the_patches_and_shows_every_prefix_token(
    prefix, pixels
):
    model = samples.model_info(prefix=prefix, registers=max(0, prefix - 1), has_cls=prefix > 0)
    shares, gap = axis((12, 10), prefix, model=model).shares(pixels)
    assert (gap.stop - gap.start > 0) == (prefix > 0)
    assert not shares[gap].any()
    rest = np.delete(shares, np.r_[gap], axis=0)
    assert rest.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert (shares.sum(axis=0) > 0).all()
    patches = shares[gap.stop :, prefix:]
    if pixels <= 120:
        assert np.ptp(patches.sum(axis=0)) < 1e-5
    assert not shares[: gap.start, prefix:].any()
    assert not shares[gap.stop :, :prefix].any()


def test_places_follow_rows_also_where_blocks_are_drawn():
    for run in (1, 2, 3):
        side = axis((3, 4), 1, run=run)
        length = (side.inches - side.start) / 3
        for row in range(4):
            assert side.position(1 + 4 * row) == pytest.approx(side.start + row * length)
    assert side.position(0) == 0
    assert side.centres[0] == pytest.approx(side.prefix_width / 2)
    for run, cells in ((1, 12), (2, 6)):
        side = axis((3, 4), 1, run=run)
        assert len(side.centres) == 1 + cells
        assert np.diff(side.centres[1:]) == pytest.approx((side.inches - side.start) / cells)
    assert side.start > side.prefix_width  # the gap
    assert axis(prefix=0).start == 0


def test_labels_name_prefix_and_rows_at_their_middles():
    side = axis((28, 28), 5, inches=3.1, model=REGISTERS)
    down = side.labels(across=False)
    assert [label.text for label in down[:3]] == ["CLS", "R1\N{EN DASH}R4", "row 0"]
    assert down[1].middle == pytest.approx(3 * side.prefix_width)
    for label in down[2:]:
        row = int(label.text.removeprefix("row "))
        start = side.start + row * (side.inches - side.start) / 28
        assert label.middle == pytest.approx(start + (side.inches - side.start) / 56)
    assert side.labels(across=True)[0].text == "CLS, R1\N{EN DASH}R4"
    wide = axis((1, 1), 5, inches=6.0, model=REGISTERS)
    assert [label.text for label in wide.labels(across=True)] == [
        "CLS", "R1", "R2", "R3", "R4", "row 0",
    ]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 120), st.integers(1, 40), st.sampled_from([0, 1, 5]), st.floats(0.9, 7))
def test_labels_never_touch(high, wide, prefix, inches):
    model = REGISTERS if prefix == 5 else samples.model_info(prefix=prefix, has_cls=prefix > 0)
    for across in (False, True):
        labels = axis((high, wide), prefix, inches, model=model).labels(across=across)
        for one, other in itertools.pairwise(labels):
            assert other.at - one.at >= (0.3 if across else 0.114)


@pytest.mark.parametrize(
    ("prefix", "registers", "has_cls", "names"),
    [
        (1, 0, True, ("CLS",)),
        (2, 0, True, ("CLS", "dist.")),
        (5, 4, True, ("CLS", "R1", "R2", "R3", "R4")),
        (1, 1, False, ("R1",)),
        (0, 0, False, ()),
    ],
)
def test_names_of_prefix_tokens(prefix, registers, has_cls, names):
    model = samples.model_info(prefix=prefix, registers=registers, has_cls=has_cls)
    assert model.prefix_names == names
