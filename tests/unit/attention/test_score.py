"""The VTC-LFC token score against numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz.attention.blocks import patch_mean_row
from attnviz.attention.score import keep_highest, score_maps, score_terms
from attnviz.domain.kinds import ScoreMaps, ScoreRequest
from attnviz.errors import UsageError
from tests.helpers.planted import dense_attention, planted_call, tiny_vit

ONE = [[0.5, 0.4, 0.1], [0.2, 0.3, 0.5], [0.6, 0.1, 0.3]]
TWO = [[0.1, 0.2, 0.7], [0.3, 0.6, 0.1], [0.25, 0.25, 0.5]]


def scores(matrices):
    call = planted_call(matrices)
    cls_row = call.rows(torch.zeros(1, dtype=torch.long))[0, :, 0]
    cls_term, patch_term = score_terms(cls_row, patch_mean_row(call, 1), 1)
    return (cls_term + patch_term).numpy()


@pytest.mark.parametrize(
    ("matrices", "expected"),
    [([ONE], [0.26, 0.24]), ([TWO], [0.0975, 0.2225]), ([ONE, TWO], [0.17875, 0.23125])],
)
def test_by_hand(matrices, expected):
    np.testing.assert_allclose(scores(matrices), expected, atol=1e-6)


def test_shares_of_the_score_by_hand():
    # CLS attends to itself by 0.5, the patches to it by 0.4: 0.5 * 0.4 twice, of 0.4 + 0.26 + 0.24.
    call = planted_call([ONE])
    cls_row = call.rows(torch.zeros(1, dtype=torch.long))[0, :, 0]
    all_terms = sum(score_terms(cls_row, patch_mean_row(call, 1), 0)).numpy()
    np.testing.assert_allclose(all_terms, [0.4, 0.26, 0.24], atol=1e-6)
    grid = (1, 2)
    score = all_terms[1:].reshape(grid)
    maps = ScoreMaps(score, score, score, score > 0, 1.0, 0, (0,), all_terms[:1])
    np.testing.assert_allclose(maps.prefix_shares, [4 / 9], atol=1e-6)
    assert maps.rows()[0]["prefix_mass"] == pytest.approx(4 / 9)


def test_registers_stay_out_of_both_means():
    backbone = tiny_vit(registers=4)
    batch = torch.randn(1, 3, 32, 24, generator=torch.Generator().manual_seed(0))
    a = dense_attention(backbone, batch)[1, 0].double().numpy()  # H, N, N
    cls_term = (a[:, 0, 5:] * a[:, 5:, 0].mean(axis=1, keepdims=True)).mean(axis=0)
    patch_term = (a[:, 0, :1] * a[:, 5:, 5:].mean(axis=1)).mean(axis=0)
    maps = score_maps(backbone, batch, ScoreRequest(layer=1, keep_ratio=0.25))[0]
    assert maps.score.shape == (4, 3)
    np.testing.assert_allclose(maps.cls_term.ravel(), cls_term, atol=1e-6)
    np.testing.assert_allclose(maps.patch_term.ravel(), patch_term, atol=1e-6)
    np.testing.assert_array_equal(maps.score, maps.cls_term + maps.patch_term)
    to_cls = a[:, 5:, 0].mean(axis=1, keepdims=True)
    prefix = a[:, 0, :5] * to_cls + a[:, 0, :1] * a[:, 5:, :5].mean(axis=1)
    np.testing.assert_allclose(maps.prefix, prefix.mean(axis=0), atol=1e-6)
    # All tokens together: the weights of the two terms, since rows sum to 1.
    assert maps.prefix.sum() + maps.score.sum() == pytest.approx(
        to_cls.mean() + a[:, 0, 0].mean(), abs=1e-5
    )
    assert maps.kept.sum() == 3
    assert maps.score[maps.kept].min() > maps.score[~maps.kept].max()


def test_kept_are_the_highest_and_ties_go_to_the_earlier():
    score = np.array([[0.1, 0.5, 0.5], [0.2, 0.5, 0.3]], dtype=np.float32)
    np.testing.assert_array_equal(keep_highest(score, 1 / 3), [[0, 1, 1], [0, 0, 0]])
    assert keep_highest(score, 1e-9).sum() == 1
    assert keep_highest(score, 1).all()


@pytest.mark.parametrize("ratio", [0, -0.5, 1.01, float("nan")])
def test_a_keep_ratio_outside_the_definition_is_refused(ratio):
    with pytest.raises(UsageError, match="keep ratio"):
        keep_highest(np.zeros((2, 2), dtype=np.float32), ratio)
