"""Queries and keys rotated and rounded: the attention stays, the bytes are few."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.attention import factors
from attnviz.attention.factors import factorize
from attnviz.domain import LayerFactors
from attnviz.explorer.packing import pack
from tests.explorer.pages import attention_of_factors, unpack


def attention(query, key):
    """softmax(q k^T) in float64."""
    logits = query.astype(np.float64) @ key.astype(np.float64).transpose(0, 2, 1)
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def random_layer(seed, heads=2, tokens=50, width=16, spread=1.0):
    """Random queries and keys whose columns differ in size, keys far from zero."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(-np.arange(width) / 4)
    query = spread * rng.standard_normal((heads, tokens, width)) * sizes
    key = rng.standard_normal((heads, tokens, width)) * sizes + 5 * rng.standard_normal(width)
    return query.astype(np.float32), key.astype(np.float32)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 20), st.floats(0.0, 20.0))
def test_attention_of_any_queries_and_keys_is_kept(seed, tokens, width, spread):
    query, key = random_layer(seed, tokens=tokens, width=width, spread=spread)
    layer = factorize(query, key)
    assert layer.query.shape == (min(tokens, width), 2, tokens)
    assert np.abs(attention_of_factors(layer) - attention(query, key)).max() < 2e-3


def logit_error(ours, query, key):
    """Root mean square of the logits' error, but for what is constant in a row."""
    exact = query.astype(np.float64) @ key.astype(np.float64).transpose(0, 2, 1)
    error = ours - exact
    return (error - error.mean(axis=-1, keepdims=True)).std()


def our_logits(layer):
    query, key = layer.query * layer.step, layer.key * layer.step
    return query.transpose(1, 2, 0) @ key.transpose(1, 0, 2)


def bits(layer):
    return 8 * len(pack(layer)) / (2 * layer.query.size)


def test_logits_are_as_exact_as_with_float16_in_fewer_bits():
    query, key = random_layer(1, tokens=400, width=32, spread=0.3)
    layer = factorize(query, key)
    half = [part.astype(np.float16).astype(np.float64) for part in (query, key)]
    rough = logit_error(half[0] @ half[1].transpose(0, 2, 1), query, key)
    assert logit_error(our_logits(layer), query, key) == pytest.approx(rough, rel=0.3)
    plain = np.stack([query, key]).astype(np.float16)
    assert bits(layer) < 8.5
    assert 8 * len(zlib.compress(plain.tobytes(), 9)) / plain.size > 12


def test_where_bits_run_out_logits_are_less_exact_but_never_above_the_bound():
    rng = np.random.default_rng(6)
    query, key = rng.standard_normal((2, 2, 400, 16)).astype(np.float32)  # no column is small
    query *= 0.1
    layer = factorize(query, key)
    assert 5e-4 < logit_error(our_logits(layer), query, key) < 4.4e-3
    assert 8.5 < bits(layer) < 10.5


def test_peaked_attention_gets_a_finer_step():
    """One query whose logits are far larger than the others': the mean size does not see it."""
    query, key = random_layer(2, tokens=400, spread=0.1)
    query[:, 7] *= 3000
    layer = factorize(query, key)
    assert np.abs(attention_of_factors(layer) - attention(query, key)).max() < 2e-3


def test_huge_logits_stay_within_sixteen_bits():
    query, key = random_layer(3, spread=1e6)
    layer = factorize(query, key)
    assert max(np.abs(layer.query).max(), np.abs(layer.key).max()) <= 32767


@pytest.mark.parametrize("rank", [1, 5])
def test_queries_that_span_few_dimensions(rank):
    """Their Gram matrix has no inverse."""
    rng = np.random.default_rng(7)
    _, key = random_layer(7, tokens=60, width=12)
    query = (rng.standard_normal((2, 60, rank)) @ rng.standard_normal((2, rank, 12))).astype(
        np.float32
    )
    layer = factorize(query, key)
    assert np.abs(attention_of_factors(layer) - attention(query, key)).max() < 2e-3
    assert not layer.query[rank:].any()


def test_columns_are_singular_vectors_and_share_their_size():
    """q' and k' have the same singular values, those of q (k - mean k)^T, largest first."""
    query, key = random_layer(8, tokens=60, width=6)
    layer = factorize(query, key)
    centred = key - key.mean(axis=1, keepdims=True)
    for head in range(2):
        sizes = np.linalg.svd(query[head] @ centred[head].T, compute_uv=False)[:6]
        for part in (layer.query, layer.key):
            columns = part[:, head].astype(float) * layer.step  # R, N
            gram = columns @ columns.T
            assert np.abs(gram - np.diag(sizes)).max() < 0.01 * sizes[0]


def test_the_decompositions_use_one_thread(monkeypatch):
    """Threads that share matrices this small mostly wait for each other, busily."""
    threads, eigh = [], torch.linalg.eigh

    def spy(matrix):
        threads.append(torch.get_num_threads())
        return eigh(matrix)

    monkeypatch.setattr(factors.torch.linalg, "eigh", spy)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        factorize(*random_layer(9))
        assert threads == [1]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_equal_keys_attend_equally():
    query = np.ones((1, 4, 3), np.float32)
    assert np.array_equal(
        attention_of_factors(factorize(query, query)), np.full((1, 4, 4), 0.25, np.float32)
    )


def test_the_order_of_bytes_by_hand():
    """0, -1, 1, 300, -300 are folded to 0, 1, 2, 600, 599: low bytes, then high bytes."""
    query = np.array([0, -1, 1], np.int16).reshape(1, 1, 3)
    key = np.array([300, -300, 5], np.int16).reshape(1, 1, 3)
    data = pack(LayerFactors(query, key, 0.5))
    assert list(zlib.decompress(data)) == [0, 1, 2, 600 - 512, 599 - 512, 10, 0, 0, 0, 2, 2, 0]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-32767, 32767), min_size=12, max_size=12))
def test_packing_loses_nothing(numbers):
    query, key = np.array(numbers, np.int16).reshape(2, 3, 1, 2)
    back = unpack(pack(LayerFactors(query, key, 0.25)), query.shape, 0.25)
    assert np.array_equal(back.query, query)
    assert np.array_equal(back.key, key)


def test_inputs_stay_as_they_are():
    query, key = random_layer(4)
    before = query.copy(), key.copy()
    factorize(query, key)
    assert np.array_equal(query, before[0])
    assert np.array_equal(key, before[1])


def test_a_layer_of_vit_s_stays_small():
    """785 tokens (224 pixels, patches of 8), 6 heads of 64, logits of standard deviation 1.5, and
    a flatter spectrum than that of any model seen.

    Twelve such layers as base64 are the page except for its image and code.
    """
    rng = np.random.default_rng(5)
    sizes = 1 / (1 + np.arange(64)) ** 0.5
    query, key = (rng.standard_normal((2, 6, 785, 64)) * sizes).astype(np.float32)
    query *= 1.5 / (query[:, ::8] @ key.transpose(0, 2, 1)).std()
    layer = factorize(query, key)
    rows = slice(100, 140)
    exact = attention(query[:, rows], key)
    assert np.abs(attention_of_factors(layer, rows) - exact).max() < 1e-3
    assert 12 * len(pack(layer)) * 4 / 3 < 12e6 - 5e5
