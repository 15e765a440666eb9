"""Principal components against a case worked by hand and against numpy's own SVD."""

from __future__ import annotations

import numpy as np
import pytest

from attnviz.attention.pca import principal_components


def test_three_points_on_a_line_by_hand():
    # Along (-3, 4)/5 at -5, 0 and 5, so the only component is that direction; its loading of
    # largest magnitude is the 4, which is positive.
    tokens = np.array([[13, -4], [10, 0], [7, 4]], np.float32)
    scores, ratios = principal_components(tokens, 2)
    assert scores[:, 0] == pytest.approx([-5, 0, 5])
    assert scores[:, 1] == pytest.approx([0, 0, 0], abs=1e-6)
    assert ratios == pytest.approx([1, 0])
    assert scores.dtype == np.float32


@pytest.mark.parametrize("shape", [(50, 8), (6, 20), (200, 64)])
def test_scores_and_ratios_are_those_of_an_svd(shape):
    tokens = (np.random.default_rng(3).standard_normal(shape) * np.arange(1, shape[1] + 1)) + 40.0
    scores, ratios = principal_components(tokens.astype(np.float32), 3)
    centred = tokens.astype(np.float32).astype(np.float64)
    centred = centred - centred.mean(axis=0)
    _, stretch, axes = np.linalg.svd(centred, full_matrices=False)
    for place in range(3):
        axis = axes[place] * np.sign(axes[place][np.abs(axes[place]).argmax()])
        assert scores[:, place] == pytest.approx(centred @ axis, abs=1e-3 * stretch[0])
    assert ratios == pytest.approx((stretch**2 / (stretch**2).sum())[:3])


def test_a_token_order_changes_nothing_and_input_stays():
    tokens = np.random.default_rng(5).standard_normal((30, 6)).astype(np.float32)
    before = tokens.copy()
    scores, ratios = principal_components(tokens)
    order = np.random.default_rng(6).permutation(30)
    again, other = principal_components(tokens[order])
    assert again == pytest.approx(scores[order], abs=1e-5)
    assert other == pytest.approx(ratios)
    assert (tokens == before).all()


def test_equal_tokens_and_missing_components_score_zero():
    scores, ratios = principal_components(np.full((7, 2), 3.5, np.float32), 3)
    assert scores.shape == (7, 3)
    assert not scores.any()
    assert not ratios.any()
