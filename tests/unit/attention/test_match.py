"""Corresponding patches: brute force, displacements that are known, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.cluster.vq import kmeans2

import attnviz
from attnviz.attention import correspondence
from attnviz.attention.compute import compute
from attnviz.attention.correspondence import nearest, spread
from attnviz.attention.features import output_tokens
from attnviz.attention.kmeans import kmeans
from attnviz.attention.match import describe, match_reference
from attnviz.attention.units import unit_vectors
from attnviz.domain import Descriptor, FigureImage, Fit
from attnviz.domain.kinds import HeadsRequest, MatchRequest, QkvRequest
from attnviz.domain.mass_mask import mass_mask
from attnviz.errors import ImageError, UsageError
from attnviz.images.fit import prepare
from tests.helpers.planted import tiny_vit


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def prepared(backbone, pixels, size=None, fit=Fit.ASPECT):
    return prepare(attnviz.read(pixels), backbone.info, size or pixels.shape[0], fit)


def matched(backbone, first, second, **options):
    """The maps of two prepared images."""
    return attnviz.match(backbone, first, like=second, **options)


def blind():
    """A model without positions and without attention: a patch's vectors are its own alone."""
    backbone = tiny_vit(size=64)
    torch.nn.init.zeros_(backbone.module.pos_embed)
    for block in backbone.module.blocks:
        torch.nn.init.zeros_(block.attn.proj.weight)
        torch.nn.init.zeros_(block.attn.proj.bias)
    return backbone


@pytest.mark.parametrize("part", list(Descriptor))
@pytest.mark.parametrize(("down", "right"), [(2, 3), (-1, 4), (0, -5)])
def test_a_shift_by_whole_patches_is_found_exactly(part, down, right):
    backbone = blind()
    pixels = noise(64, 96)
    # What leaves the picture is new on the other side.
    moved = np.roll(pixels, (8 * down, 8 * right), (0, 1))
    first, second = prepared(backbone, pixels), prepared(backbone, moved)
    maps = matched(backbone, first, second, part=part, pairs="all")
    assert len(maps.cells) == 8 * 12
    assert maps.mutual.all()
    np.testing.assert_array_equal((maps.cells + np.array([down, right])) % (8, 12), maps.like_cells)
    np.testing.assert_allclose(maps.cosine, 1, atol=1e-5)
    assert len(matched(backbone, first, second, part=part).cells) == 10


def test_with_positions_the_same_picture_matches_itself():
    backbone = tiny_vit(size=64, registers=2)
    image = prepared(backbone, noise(64, 64))
    maps = matched(backbone, image, image, pairs="all")
    np.testing.assert_array_equal(maps.cells, maps.like_cells)
    assert len(maps.cells) == 64
    assert (np.diff(maps.attention) <= 0).all()


@pytest.mark.parametrize("block", [1, 60, 1 << 24])
def test_nearest_neighbours_by_brute_force(block, monkeypatch):
    monkeypatch.setattr(correspondence, "BLOCK_VALUES", block)
    rng = np.random.default_rng(4)
    first = unit_vectors(rng.standard_normal((40, 7)).astype(np.float32))
    second = unit_vectors(rng.standard_normal((25, 7)).astype(np.float32))
    found = nearest(first, second)
    pairs = []
    for i, mine in enumerate(first.astype(float)):
        cosines = [float(mine @ other) for other in second.astype(float)]
        j = max(range(25), key=cosines.__getitem__)
        assert found.there[i] == j
        assert found.best[i] == pytest.approx(cosines[j], abs=1e-6)
        back = max(range(40), key=lambda k: float(first[k].astype(float) @ second[j]))
        pairs += [(i, j)] if back == i else []
    assert [(i, int(found.there[i])) for i in np.flatnonzero(found.mutual)] == pairs
    assert 0 < len(pairs) < 25
    for j in range(25):
        cosines = first.astype(float) @ second[j].astype(float)
        assert found.back[j] == cosines.argmax()
        assert found.best_back[j] == pytest.approx(cosines.max(), abs=1e-6)


@pytest.mark.parametrize("block", [1, 1 << 24])
def test_ties_go_to_the_first_patch(block, monkeypatch):
    monkeypatch.setattr(correspondence, "BLOCK_VALUES", block)
    same = np.tile(np.array([[1.0, 0.0]], np.float32), (3, 1))
    found = nearest(same, same)
    assert found.there.tolist() == [0, 0, 0]
    assert found.back.tolist() == [0, 0, 0]
    assert found.mutual.tolist() == [True, False, False]


def test_spread_pairs_by_hand():
    # Three heaps of pairs that show the same; of each the one of highest rank, highest first.
    first = np.array([[1, 0], [1, 0.01], [0, 1], [0.01, 1], [-1, 0], [-1, 0.01]], np.float32)
    rank = np.array([0.1, 0.2, 0.6, 0.5, 0.3, 0.3], np.float32)
    assert spread(first, first, rank, 3).tolist() == [2, 4, 1]
    assert spread(first, first, rank, 6).tolist() == [2, 3, 4, 5, 1, 0]
    assert spread(first, first, rank, 10).tolist() == [2, 3, 4, 5, 1, 0]
    assert spread(first, first, rank, 1).tolist() == [2]


def test_both_members_count_for_what_a_pair_shows():
    same = np.tile(np.array([[1.0, 0.0]], np.float32), (4, 1))
    other = np.array([[1, 0], [0, 1], [0.05, 1], [1, 0.05]], np.float32)
    rank = np.array([4, 3, 2, 1], np.float32)
    assert spread(same, other, rank, 2).tolist() == [0, 1]


def test_clusters_are_those_of_scipy_from_the_same_starts(monkeypatch):
    points = np.random.default_rng(8).standard_normal((120, 6)).astype(np.float32)
    starts = points[::12].astype(np.float64)
    monkeypatch.setattr("attnviz.attention.kmeans._starts", lambda *_: starts.copy())
    _, expected = kmeans2(points.astype(np.float64), starts.copy(), iter=100, minit="matrix")
    np.testing.assert_array_equal(kmeans(points, 10), expected)


def test_clusters_are_the_same_in_every_run_and_far_apart():
    heaps = np.repeat(np.eye(5) * 100, 20, axis=0)
    points = (heaps + np.random.default_rng(1).standard_normal(heaps.shape)).astype(np.float32)
    labels = kmeans(points, 5)
    np.testing.assert_array_equal(labels, kmeans(points, 5))
    assert [len(set(part)) for part in labels.reshape(5, 20)] == [1] * 5
    assert set(labels) == set(range(5))
    assert set(kmeans(np.ones((9, 2), np.float32), 3)) == {0}


@pytest.mark.parametrize("cls", [True, False])
def test_descriptors_and_attention_are_those_of_other_commands(cls):
    backbone = tiny_vit(cls=cls, depth=4)
    batch = torch.randn(2, 3, 32, 24, generator=torch.Generator().manual_seed(1))
    prefix = backbone.info.prefix
    (both, heads) = (
        compute(backbone, batch, [None] * 2, request)
        for request in (
            QkvRequest(layer=3),
            HeadsRequest(distance=False, query="cls" if cls else "mean"),
        )
    )
    for number, part in enumerate("qkv"):
        for image, own in enumerate(describe(backbone, batch, MatchRequest("b", part=part))):
            vectors = both[image].vectors[number, :, prefix:]  # H, n, d
            joined = vectors.transpose(1, 0, 2).reshape(12, -1)
            np.testing.assert_allclose(own.vectors, unit_vectors(joined), atol=1e-6)
            attention = heads[image].attention.mean(axis=0).ravel()
            np.testing.assert_allclose(own.attention, attention, atol=1e-6)
    for layer in (0, 3):
        tokens, _ = output_tokens(backbone, batch, layer)
        own = describe(backbone, batch, MatchRequest("b", layer=layer, part="tokens"))
        np.testing.assert_array_equal(own[1].vectors, unit_vectors(tokens[1, prefix:]))


def test_the_default_layer_is_at_three_quarters_of_the_depth():
    backbone = tiny_vit(depth=4)
    image = prepared(backbone, noise(32, 32))
    assert matched(backbone, image, image).layer == 3
    assert matched(backbone, image, image, layer=-4).layer == 0
    with pytest.raises(UsageError, match="layer 4 does not exist"):
        matched(backbone, image, image, layer=4)


def test_only_pairs_inside_both_masks():
    backbone = tiny_vit(size=64)
    pixels = noise(64, 64)
    first, second = prepared(backbone, pixels), prepared(backbone, pixels // 2 + 60)
    every = matched(backbone, first, second, pairs="all")
    some = matched(backbone, first, second, pairs="all", threshold=0.8)
    masks = [
        mass_mask(attnviz.heads(backbone, image).attention.mean(axis=0), 0.8)
        for image in (first, second)
    ]
    inside = [
        masks[0][tuple(cell)] and masks[1][tuple(other)]
        for cell, other in zip(every.cells, every.like_cells, strict=True)
    ]
    assert 0 < sum(inside) < len(inside)
    np.testing.assert_array_equal(some.cells, every.cells[inside])
    np.testing.assert_array_equal(some.mutual_cosine, every.cosine[inside])


def test_every_pair_is_mutual_and_no_mutual_pair_is_missing():
    backbone = tiny_vit(size=64)
    first, second = (prepared(backbone, noise(64, 64, seed)) for seed in (1, 2))
    maps = matched(backbone, first, second, pairs="all")
    back = matched(backbone, second, first, pairs="all")
    pairs = {
        (*cell, *other)
        for cell, other in zip(maps.cells.tolist(), maps.like_cells.tolist(), strict=True)
    }
    assert maps.mutual.all()
    assert 0 < len(pairs) < 64
    assert pairs == {
        (*other, *cell)
        for cell, other in zip(back.cells.tolist(), back.like_cells.tolist(), strict=True)
    }


def test_pixels_of_both_originals():
    backbone = blind()
    pixels = noise(64, 96)
    larger = np.repeat(np.repeat(pixels, 2, axis=0), 2, axis=1)
    first = prepared(backbone, pixels)
    # The second is twice as large, and cropped to its middle: 8 by 8 of its 8 by 12 patches.
    second = prepared(backbone, larger, 64, Fit.CROP)
    maps = matched(backbone, first, second, cells=[(3, 2), (0, 9)])
    assert maps.xy.tolist() == [[20, 28], [76, 4]]
    assert maps.like_cells.tolist() == [[3, 0], [0, 7]]
    assert maps.like_xy.tolist() == [[40, 56], [152, 8]]
    assert maps.mutual.all()
    rows = maps.pair_rows()
    assert [(row["like_x"], row["like_y"]) for row in rows] == [(40, 56), (152, 8)]
    assert [(row["row"], row["column"]) for row in rows] == [(3, 2), (0, 9)]


def test_chosen_patches_keep_their_order_and_may_be_one_sided():
    backbone = tiny_vit(size=64)
    first, second = (prepared(backbone, noise(64, 64, seed)) for seed in (1, 2))
    maps = matched(backbone, first, second, cells=[(7, 7), (0, 0)], points=[(12.0, 20.0)])
    assert maps.cells.tolist() == [[7, 7], [0, 0], [2, 1]]
    found = nearest(
        *(
            describe(backbone, torch.from_numpy(image.tensor[None]), MatchRequest("b"))[0].vectors
            for image in (first, second)
        )
    )
    assert maps.mutual.tolist() == [bool(found.mutual[index]) for index in (63, 0, 17)]
    with pytest.raises(ImageError, match="cell 8,0 lies outside"):
        matched(backbone, first, second, cells=[(8, 0)])


def test_a_batch_is_matched_image_by_image():
    backbone = tiny_vit(size=64)
    images = [prepared(backbone, noise(64, 64, seed)) for seed in range(3)]
    request = MatchRequest("b")
    second = images[2]
    shown = FigureImage(second.image.pixels, second.geometry, "b")
    reference = match_reference(backbone, backbone.batch([second]), shown, request)
    geometries = [each.geometry for each in images[:2]]
    both = compute(backbone, backbone.batch(images[:2]), geometries, request, reference)
    for image, maps in zip(images, both, strict=False):
        alone = matched(backbone, image, second)
        np.testing.assert_array_equal(maps.cells, alone.cells)
        np.testing.assert_allclose(maps.best, alone.best, atol=1e-6)


def test_wrong_use():
    with pytest.raises(UsageError, match="match needs two images"):
        MatchRequest()
    with pytest.raises(UsageError, match="0 pairs"):
        MatchRequest("b", pairs=0)
