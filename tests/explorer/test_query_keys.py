"""Captured queries and keys give the attention that the model computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnviz.attention.query_keys import query_keys
from attnviz.errors import UnsupportedModelError, UsageError
from tests.helpers import checkpoints
from tests.helpers.planted import dense_attention, tiny_vit


@pytest.mark.parametrize("options", [{}, {"registers": 4}, {"cls": False}, {"qk_norm": True}])
def test_their_softmax_is_the_models_attention(options):
    model = tiny_vit(**options)
    batch = checkpoints.pixels(24, 40)
    result = query_keys(model, batch)
    dense = dense_attention(model, batch)[:, 0].numpy()
    assert result.layers == (0, 1, 2)
    for layer in result.layers:
        logits = result.query[layer] @ result.key[layer].transpose(0, 2, 1)
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        ours = powers / powers.sum(axis=-1, keepdims=True)
        assert np.abs(ours - dense[layer]).max() < 1e-5


def test_only_the_asked_layers_are_kept_in_order():
    model = tiny_vit()
    batch = checkpoints.pixels(32, 32)
    all_layers, some = query_keys(model, batch), query_keys(model, batch, (-1, 0))
    assert some.layers == (0, 2)
    assert np.array_equal(some.query, all_layers.query[[0, 2]])
    with pytest.raises(UsageError, match="layer 3 does not exist"):
        query_keys(model, batch, (3,))


def test_a_model_that_masks_its_attention_is_refused(monkeypatch):
    model = tiny_vit()
    attn = model.module.blocks[1].attn

    def masked(x, *_args, **_kwargs):
        query, key, value = (
            attn.qkv(x).reshape(1, x.shape[1], 3, attn.num_heads, -1).permute(2, 0, 3, 1, 4)
        )
        bias = torch.linspace(0, 1, x.shape[1])  # of the key alone, wherever the query is
        out = scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return attn.proj(out.transpose(1, 2).reshape(x.shape))

    monkeypatch.setattr(attn, "forward", masked)
    query_keys(model, checkpoints.pixels(32, 32), (0,))
    with pytest.raises(UnsupportedModelError, match="layer 1 adds a mask"):
        query_keys(model, checkpoints.pixels(32, 32))
