"""Object discovery: by hand, the definitions written out densely, planted objects, boxes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import eigh

import attnviz
from attnviz.attention import discover as discover_module
from attnviz.attention.descriptors import joined_vectors
from attnviz.attention.discover import discover_maps
from attnviz.attention.discovery import component, discover, largest_component, lost, token_cut
from attnviz.attention.eigenvectors import DENSE_SIZE, cut_eigenvectors
from attnviz.attention.units import unit_vectors
from attnviz.domain import DiscoverMethod, Fit, Part, Size
from attnviz.domain.kinds import DiscoverRequest
from attnviz.errors import ImageError, UsageError
from attnviz.images.fit import prepare
from tests.helpers.planted import tiny_vit

METHODS = tuple(DiscoverMethod)


def planted(grid, inside, seed=0, noise=0.15):
    """Vectors (n, 16) that point one way on the object and another way beside it."""
    rng = np.random.default_rng(seed)
    ways = np.eye(16)[:2] - 0.2 * np.eye(16)[1::-1]  # a cosine a little below 0
    vectors = ways[np.where(inside.ravel(), 0, 1)] * rng.uniform(1, 2, (inside.size, 1))
    return (vectors + noise * rng.standard_normal(vectors.shape)).astype(np.float32)


def rectangle(grid, rows, columns):
    inside = np.zeros(grid, bool)
    inside[rows, columns] = True
    return inside


def test_lost_by_hand():
    # Dot products: 0 with 1 is 1, with 2 is -1; 1 with 2 is 0; 3, 4 and 5 are like all but 0.
    vectors = np.array(
        [[-1, 0], [-1, 1], [1, 1], [1, 2], [2, 3], [1, 1]], np.float32
    )  # fmt: skip
    result = lost(vectors, Size(2, 3))
    dots = vectors @ vectors.T
    assert dots[0].tolist() == [1, 1, -1, -1, -2, -1]
    assert dots[1].tolist() == [1, 2, 0, 1, 1, 0]
    assert result.degree.tolist() == [[1, 3, 3], [4, 4, 3]]
    assert result.seed == 0
    # Like the seed: itself and 1. The sum of their rows is that of (-2, 1).
    assert result.similarity.tolist() == [[2, 3, -1], [0, -1, -1]]
    assert result.mask.tolist() == [[True, True, False], [False, False, False]]


def test_the_seed_and_its_likes_come_first_in_reading_order():
    vectors = np.tile(np.array([[1.0, 0.0]], np.float32), (6, 1))
    result = lost(vectors, Size(2, 3))
    assert result.seed == 0
    assert result.degree.tolist() == [[5] * 3] * 2
    assert result.mask.all()


def test_lost_looks_at_a_hundred_patches_and_no_more():
    # All alike but in length: the hundred first are summed.
    vectors = np.arange(1, 145, dtype=np.float32)[:, None]
    result = lost(vectors, Size(12, 12))
    assert result.similarity[0, 0] == sum(range(1, 101))


@pytest.mark.parametrize("block", [1, 200, 1 << 24])
def test_degrees_do_not_depend_on_blocks(block, monkeypatch):
    monkeypatch.setattr("attnviz.attention.discovery.BLOCK_VALUES", block)
    vectors = np.random.default_rng(1).standard_normal((48, 5)).astype(np.float32)
    positive = vectors @ vectors.T > 0
    np.fill_diagonal(positive, val=False)
    np.testing.assert_array_equal(lost(vectors, Size(6, 8)).degree.ravel(), positive.sum(axis=1))


def written_out(vectors, grid, method):
    """Mask, seed and vectors by the definitions, with dense matrices and scipy's eigh alone."""
    double = vectors.astype(np.float64)
    if method is DiscoverMethod.LOST:
        a = double @ double.T
        degree = (a > 0).sum(axis=1) - (np.diag(a) > 0)
        order = sorted(range(len(a)), key=lambda patch: (degree[patch], patch))
        seed = order[0]
        likes = [patch for patch in order[:100] if a[seed, patch] > 0]
        values = a[likes].sum(axis=0)
        return flooded(values.reshape(grid) > 0, seed), seed, values[None]
    units = double / np.linalg.norm(double, axis=1, keepdims=True)
    if method is DiscoverMethod.TOKENCUT:
        weights = np.where(units @ units.T > 0.2, 1, 1e-5)
        d = np.diag(weights.sum(axis=1))
        vector = eigh(d - weights, d)[1][:, 1]
        seed = int(np.abs(vector).argmax())
        vector *= np.sign(vector[seed])
        return flooded((vector > vector.mean()).reshape(grid), seed), seed, vector[None]
    weights = np.maximum(units @ units.T, 0)
    d = np.diag(weights.sum(axis=1))
    found = eigh(d - weights, d)[1][:, 1:6].T
    found *= np.where((found > 0).mean(axis=1) > 0.5, -1, 1)[:, None]
    positive = (found[0] > 0).reshape(grid)
    parts = {flooded(positive, patch).tobytes(): patch for patch in np.flatnonzero(positive)[::-1]}
    sizes = {patch: flooded(positive, patch).sum() for patch in parts.values()}
    largest = flooded(positive, min(sizes, key=lambda patch: (-sizes[patch], patch)))
    return largest, int(np.where(largest.ravel(), found[0], -9).argmax()), found


def flooded(mask, seed):
    """The 4-connected component of a seed, cell by cell."""
    out, waiting = np.zeros(mask.shape, bool), [divmod(seed, mask.shape[1])]
    while waiting:
        row, column = waiting.pop()
        inside = 0 <= row < mask.shape[0] and 0 <= column < mask.shape[1]
        if inside and mask[row, column] and not out[row, column]:
            out[row, column] = True
            waiting += [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
    return out


@pytest.mark.parametrize("grid", [Size(9, 7), Size(16, 24)], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_the_definitions_written_out(method, grid):
    assert (grid.height * grid.width > DENSE_SIZE) == (grid.height == 16)  # both solvers
    rng = np.random.default_rng(3)
    inside = rectangle(grid, slice(2, 6), slice(1, 5))
    vectors = planted(grid, inside, seed=3, noise=0.5) + 0.1 * rng.standard_normal(16)
    vectors = vectors.astype(np.float32)
    mask, seed, values = written_out(vectors, grid, method)
    result = discover(vectors, grid, method)
    assert result.seed == seed
    np.testing.assert_array_equal(result.mask, mask)
    assert 0 < mask.sum() < mask.size
    own = result.similarity[None] if method is DiscoverMethod.LOST else result.eigenvectors
    own = own.reshape(len(values), -1)
    np.testing.assert_allclose(own, values, rtol=0, atol=1e-5 * np.abs(values).max())


@pytest.mark.parametrize("shape", [(12, 18), (18, 12), (20, 20)])
@pytest.mark.parametrize("method", METHODS)
def test_a_planted_object_is_found(method, shape):
    inside = rectangle(shape, slice(3, 8), slice(2, 7))
    result = discover(planted(shape, inside), Size(*shape), method)
    np.testing.assert_array_equal(result.mask, inside)
    assert inside.ravel()[result.seed]


@pytest.mark.parametrize("method", METHODS)
def test_a_second_object_apart_from_the_first_is_left_out(method):
    grid = Size(16, 16)
    first, second = (rectangle(grid, s, s) for s in (slice(2, 8), slice(11, 14)))
    result = discover(planted(grid, first | second), grid, method)
    parts = [first, second] if method is not DiscoverMethod.SPECTRAL else [first]
    assert any(np.array_equal(result.mask, part) for part in parts)


@pytest.mark.parametrize("method", METHODS)
def test_where_all_patches_are_equal_nothing_is_set_apart(method):
    result = discover(np.ones((6, 4), np.float32), Size(2, 3), method)
    assert result.mask.all()
    assert result.seed == 0


@pytest.mark.parametrize("method", METHODS)
def test_two_patches_and_a_zero_vector(method):
    result = discover(np.array([[0, 0], [1, 2]], np.float32), Size(1, 2), method)
    assert result.mask.any()
    values = result.similarity if method is DiscoverMethod.LOST else result.eigenvectors
    assert np.isfinite(values).all()


def test_a_single_patch_is_refused():
    with pytest.raises(ImageError, match="at least two patches"):
        discover(np.ones((1, 4), np.float32), Size(1, 1), DiscoverMethod.LOST)


def test_eigenvectors_by_hand():
    # A path of three nodes with loops: D = (2, 3, 2), eigenvalues 0, 1/2, 7/6.
    weights = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], np.float64)
    eigenvalues, vectors = cut_eigenvectors(weights, 2)
    np.testing.assert_allclose(eigenvalues, [1 / 2, 7 / 6], atol=1e-12)
    np.testing.assert_allclose(np.abs(vectors[0]), [1 / 2, 0, 1 / 2], atol=1e-12)
    np.testing.assert_allclose((vectors**2) @ weights.sum(axis=1), [1, 1])
    assert vectors[1, 1] > 0


def test_both_solvers_agree():
    vectors = np.random.default_rng(5).standard_normal((300, 6))
    weights = np.maximum(vectors @ vectors.T, 0) + 0.01
    eigenvalues, found = cut_eigenvectors(weights, 5)
    d = np.diag(weights.sum(axis=1))
    expected, dense = eigh(d - weights, d, subset_by_index=[1, 5])
    np.testing.assert_allclose(eigenvalues, expected, atol=1e-9)
    np.testing.assert_allclose(np.abs(found), np.abs(dense.T), atol=1e-7)


def test_components_join_at_edges_and_not_at_corners():
    mask = np.array([[1, 0, 0], [0, 1, 1], [0, 1, 0]], bool)
    assert component(mask, 0).sum() == 1
    assert component(mask, 4).sum() == 3
    assert component(mask, 2).tolist() == [[False, False, True], [False] * 3, [False] * 3]
    assert largest_component(mask).sum() == 3
    ties = np.array([[0, 1, 0, 1]], bool)
    assert largest_component(ties).tolist() == [[False, True, False, False]]


def test_the_vectors_are_those_of_the_models_own_projection():
    backbone = tiny_vit(registers=2, heads=3)
    batch = torch.randn(2, 3, 32, 24, generator=torch.Generator().manual_seed(1))
    outputs = []
    handle = backbone.module.blocks[1].attn.qkv.register_forward_hook(
        lambda _module, _inputs, output: outputs.append(output)
    )
    backbone.run(batch)
    handle.remove()
    # As the code of LOST reads them: (B, N, 3, H, d), heads side by side.
    parts = outputs[0].reshape(2, 3 + 12, 3, 3 * 16)[:, 3:].numpy()
    for index, part in enumerate((Part.QUERY, Part.KEY, Part.VALUE)):
        own = np.stack(joined_vectors(backbone, batch, 1, part))
        np.testing.assert_allclose(own, parts[:, :, index], atol=1e-5)


def test_unit_vectors():
    units = unit_vectors(np.array([[3, 4], [0, 0]], np.float32))
    np.testing.assert_allclose(units, [[0.6, 0.8], [0, 0]])


CASES = {
    # original size, fit, the object's rows and columns, and its box on the original
    "landscape": ((160, 240), Fit.ASPECT, (1, 3, 2, 5), (80.0, 40.0, 200.0, 120.0)),
    "portrait": ((240, 160), Fit.ASPECT, (1, 3, 0, 2), (0.0, 40.0, 80.0, 120.0)),
    "squashed": ((160, 240), Fit.SQUASH, (1, 3, 0, 2), (0.0, 40.0, 120.0, 120.0)),
    "cropped": ((160, 240), Fit.CROP, (0, 2, 1, 3), (80.0, 0.0, 160.0, 80.0)),
    "padded": ((160, 320), Fit.PAD, (0, 3, 1, 3), (80.0, 0.0, 240.0, 160.0)),
    "padded at the side": ((320, 160), Fit.PAD, (1, 3, 1, 3), (80.0, 80.0, 160.0, 240.0)),
    "in the padding": ((320, 160), Fit.PAD, (1, 3, 3, 4), (160.0, 80.0, 160.0, 240.0)),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_the_box_is_in_pixels_of_the_original(case, method, monkeypatch):
    (height, width), fit, (top, bottom, left, right), box = CASES[case]
    backbone = tiny_vit()
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    prepared = prepare(attnviz.read(pixels), backbone.info, 32, fit)
    grid = prepared.geometry.grid
    vectors = planted(grid, rectangle(grid, slice(top, bottom), slice(left, right)), noise=0.01)
    monkeypatch.setattr(discover_module, "joined_vectors", lambda *_: [vectors])
    batch = torch.from_numpy(prepared.tensor[None])
    (maps,) = discover_maps(backbone, batch, DiscoverRequest(method), [prepared.geometry])
    assert maps.box.ltrb == pytest.approx(box)
    assert maps.arrays()["box"].tolist() == pytest.approx(box)
    row = maps.rows()[0]
    assert (row["left"], row["top"], row["right"], row["bottom"]) == pytest.approx(box)
    assert row["share"] == maps.mask.mean()


def test_layers_and_parts_differ_and_a_layer_out_of_range_is_refused():
    backbone = tiny_vit(size=64)
    batch = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    geometry = prepare(
        attnviz.read(np.zeros((64, 64, 3), np.uint8)), backbone.info, 64, Fit.ASPECT
    ).geometry
    requests = [DiscoverRequest(layer=layer, part=part) for layer in (0, -1) for part in Part]
    found = [discover_maps(backbone, batch, each, [geometry])[0].object_map for each in requests]
    assert len({each.tobytes() for each in found}) == len(requests)
    with pytest.raises(UsageError, match="layer 3 does not exist"):
        discover_maps(backbone, batch, DiscoverRequest(layer=3), [geometry])


def test_token_cut_is_the_same_in_every_run():
    vectors = np.random.default_rng(7).standard_normal((400, 12)).astype(np.float32)
    first, second = (token_cut(vectors, Size(20, 20)).eigenvectors for _ in range(2))
    np.testing.assert_array_equal(first, second)
