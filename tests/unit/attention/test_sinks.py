"""Attention received: columns of the matrix, their sums, and how far the largest stands out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz.attention.blocks import columns
from attnviz.attention.maps import heads_maps, layers_maps, patch_maps
from attnviz.attention.matrix import matrix_maps
from attnviz.domain import Direction, LayersMaps, Query
from attnviz.domain.kinds import HeadsRequest, LayersRequest, MatrixRequest, PatchRequest
from attnviz.domain.row_statistics import sink_ratio, sink_rows
from tests.helpers.planted import dense_attention, plain_qkv, planted_call, tiny_vit

BATCH = torch.randn(2, 3, 32, 24, generator=torch.Generator().manual_seed(0))  # 4 x 3 patches
A = [[0.5, 0.4, 0.1], [0.2, 0.3, 0.5], [0.6, 0.1, 0.3]]


def test_columns_by_hand():
    found = columns(planted_call([A]), torch.tensor([2, 0]))
    np.testing.assert_allclose(found[0], [[0.1, 0.5, 0.3], [0.5, 0.2, 0.6]], atol=1e-6)


def test_sinks_by_hand():
    received = np.array([[1.3, 0.8, 0.9], [1, 1, 1], [0, 3, 0]], np.float32)
    np.testing.assert_allclose(sink_ratio(received), [1.3 / 0.9, 1, np.inf])
    assert sink_rows(received[:1]) == [{"sink_token": 0, "sink_ratio": pytest.approx(1.3 / 0.9)}]
    # Of two heads the sinks are tokens 2 and 0; their values are 1 and 4 long, the medians 2 and 4.
    maps = LayersMaps(
        np.zeros((1, 2, 1, 2), np.float32), np.zeros((1, 2, 1), np.float32),
        np.zeros((1, 2), np.float32), None, (0,), (0, 1),
        received=np.array([[[1, 0.5, 1.5], [2, 0.5, 0.5]]], np.float32),
        value_norms=np.array([[[2, 3, 1], [4, 4, 5]]], np.float32),
    )  # fmt: skip
    np.testing.assert_allclose(maps.sink_ratios, [[1.5, 4]])
    np.testing.assert_allclose(maps.sink_value_ratios, [[0.5, 1]])
    assert [row["sink_token"] for row in maps.rows()] == [2, 0]
    assert [row["sink_value_ratio"] for row in maps.rows()] == [0.5, 1]


@pytest.mark.parametrize("registers", [0, 2])
@pytest.mark.parametrize("query", ["cls", "mean"])
def test_received_is_the_sum_of_columns_in_every_command(registers, query):
    backbone = tiny_vit(registers=registers)
    expected = dense_attention(backbone, BATCH).double().numpy().sum(axis=-2)  # L, B, H, N
    heads = heads_maps(backbone, BATCH, HeadsRequest(1, (1, 0), query=Query(query)))
    matrix = matrix_maps(backbone, BATCH, MatrixRequest(1, (1, 0)))
    layers = layers_maps(
        backbone, BATCH, LayersRequest((0, 2), (1, 0), distance=False, query=query, sinks=True)
    )
    for image in range(2):
        wanted = expected[:, image][:, [1, 0]]
        np.testing.assert_allclose(wanted.sum(axis=-1), wanted.shape[-1], rtol=1e-5)
        np.testing.assert_allclose(heads[image].received, wanted[1], atol=2e-5)
        np.testing.assert_allclose(matrix[image].received, wanted[1], atol=2e-5)
        np.testing.assert_allclose(layers[image].received, wanted[[0, 2]], atol=2e-5)
        for row, ratio in zip(heads[image].rows(), sink_ratio(wanted[1]), strict=True):
            assert row["sink_ratio"] == pytest.approx(ratio, rel=1e-3)
        for index, layer in enumerate((0, 2)):
            value = plain_qkv(backbone, BATCH, layer)[2][image, [1, 0]]
            norms = np.linalg.norm(value, axis=-1)
            np.testing.assert_allclose(layers[image].value_norms[index], norms, rtol=1e-5)


def test_without_the_whole_matrix_nothing_is_said_of_sinks():
    backbone = tiny_vit()
    (one, _) = heads_maps(backbone, BATCH, HeadsRequest(distance=False))
    assert one.received is None
    assert "received" not in one.arrays()
    (plain, _) = layers_maps(backbone, BATCH, LayersRequest())
    assert (plain.received, plain.sink_ratios) == (None, None)
    assert not any(name.startswith("sink") for row in plain.rows() for name in row)


@pytest.mark.parametrize("registers", [0, 2])
def test_what_looks_at_a_patch_is_its_column(registers):
    backbone = tiny_vit(registers=registers)
    prefix = backbone.info.prefix
    matrices = dense_attention(backbone, BATCH)[1].double().numpy()  # B, H, N, N
    cells = [[(0, 1), (3, 2)], [(2, 0), (1, 1)]]
    request = PatchRequest(1, (1, 0), direction=Direction.TO)
    for maps, matrix, own in zip(
        patch_maps(backbone, BATCH, request, cells), matrices, cells, strict=True
    ):
        for index, (row, column) in enumerate(own):
            expected = matrix[[1, 0], :, prefix + 3 * row + column]  # H, N
            np.testing.assert_allclose(
                maps.attention[index].reshape(2, -1), expected[:, prefix:], atol=1e-5
            )
            np.testing.assert_allclose(maps.prefix[index], expected[:, :prefix], atol=1e-5)
            np.testing.assert_allclose(maps.received[index], expected.sum(axis=1), atol=2e-5)
        assert maps.entropy is None
        assert "entropy" not in maps.arrays()
        assert maps.arrays()["received"].shape == (2, 2)
        (first, *_) = maps.rows()
        assert first["received"] == pytest.approx(float(maps.received[0, 0]))
        assert first["from_prefix"] == pytest.approx(float(maps.prefix[0, 0].sum()))
