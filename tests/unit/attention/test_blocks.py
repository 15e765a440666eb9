"""Blocks of attention against softmax in float64, whatever the size of the logits."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnviz.attention.arrays import TokenLayout
from attnviz.attention.blocks import row_blocks
from attnviz.attention.capture import AttentionCall
from attnviz.attention.stats import MatrixStats, StatsOptions
from attnviz.domain import Size
from attnviz.domain.row_statistics import entropy

LAYOUT = TokenLayout(1, Size(6, 10), 8)
EVERYTHING = StatsOptions(mean=True, distance=True, entropy=True)


def random_call(spread, offset=0.0, mask=None):
    """Logits of about ``offset`` +- ``spread``: one image, 3 heads, 61 tokens, width 8."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 3, 61, 8, generator=generator) for _ in range(3))
    query = query * spread
    query[..., 0], key[..., 0] = offset, 1.0
    return AttentionCall(0, query, key, value, mask, 8**-0.5)


def exact(call):
    """Attention (H, N, N) in float64."""
    logits = call.query[0].double() @ call.key[0].double().transpose(-2, -1) * call.scale
    return logits.softmax(dim=-1)


def collected(call, output=None, **options):
    """Attention (H, N, N) out of all blocks, and how often the row's maximum was left in."""
    whole = torch.zeros(3, 61, 61)
    unshifted = []

    for block in row_blocks(call, output=output, **options):
        unshifted.append(bool((block.weights.amax(dim=-1) != 1).any()))
        whole[:, block.rows] = block.attention()
    return whole, unshifted


@pytest.mark.parametrize(
    ("spread", "offset", "left_in"),
    [(1, 0, True), (5, 20, True), (1, -200, False), (1, 300, False), (60, 0, False)],
)
@pytest.mark.parametrize("rows", [1, 16, 256])
def test_attention_and_output_are_exact(spread, offset, left_in, rows, monkeypatch):
    monkeypatch.setattr("attnviz.attention.blocks.CPU_BLOCK_ROWS", rows)
    call = random_call(spread, offset)
    output = torch.empty(3, 61, 8)
    whole, unshifted = collected(call, output)
    assert all(unshifted) is left_in
    size = max(1, spread, abs(offset)) * 2e-6
    assert (whole - exact(call)).abs().max() < size
    own = scaled_dot_product_attention(call.query, call.key, call.value, scale=call.scale)
    assert (output - own[0]).abs().max() < 4 * size


@pytest.mark.parametrize("logit", [-150.0, 150.0])
def test_a_row_that_needs_its_maximum_taken_out_is_made_again(logit, monkeypatch):
    """Row 10 alone has logits whose e^x is 0 or infinite."""
    monkeypatch.setattr("attnviz.attention.blocks.CPU_BLOCK_ROWS", 8)
    call = random_call(1)
    call.query[0, 1, 10] = torch.tensor([logit * 8**0.5, 0, 0, 0, 0, 0, 0, 0])
    whole, unshifted = collected(call)
    assert any(unshifted)
    assert not all(unshifted)
    assert (whole - exact(call)).abs().max() < 2e-5


@pytest.mark.parametrize("spread", [1, 60])
def test_entropy_is_exact_with_and_without_the_shift(spread):
    call = random_call(spread)
    stats = MatrixStats(LAYOUT, 3, EVERYTHING, call.query.device)
    stats.read(call)
    expected = entropy(exact(call).numpy())
    assert abs(stats.entropy.numpy() - expected).max() < 2e-4


def test_entropy_of_rows_with_hidden_tokens():
    hidden = torch.ones(61, 61, dtype=torch.bool)
    hidden[:, 30:] = False
    call = random_call(1, mask=hidden)
    stats = MatrixStats(LAYOUT, 3, EVERYTHING, call.query.device)
    stats.read(call)
    logits = call.query[0].double() @ call.key[0, :, :30].double().transpose(-2, -1) * call.scale
    expected = entropy(logits.softmax(dim=-1).numpy())
    assert abs(stats.entropy.numpy() - expected).max() < 1e-5


def test_the_same_call_gives_the_same_bits():
    call = random_call(3)
    runs = []
    for _ in range(5):
        stats = MatrixStats(LAYOUT, 3, EVERYTHING, call.query.device)
        stats.read(call)
        runs.append((stats.mean_row, stats.distance, stats.entropy))
    for run in runs[1:]:
        assert all(torch.equal(ours, first) for ours, first in zip(run, runs[0], strict=True))
