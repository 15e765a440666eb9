"""Deletion, insertion and SaCo: an additive model by hand, and a ViT against plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import trapezoid
from scipy.ndimage import gaussian_filter
from torch.nn.functional import cosine_similarity

import attnviz
from attnviz.attention.checks import check_faithful
from attnviz.attention.compute import compute
from attnviz.attention.faithful import (
    cell_counts,
    faithful_maps,
    measure,
    rank_groups,
    ranked,
    saco,
    score_of,
)
from attnviz.attention.faithful_cost import images_in_a_pass, most_passes
from attnviz.attention.perturb import BLUR_SIGMA, HiddenCells, cells_of_pixels, painted
from attnviz.domain import Baseline
from attnviz.domain.kinds import FaithfulRequest, HeadsRequest, RelevanceRequest, RolloutRequest
from attnviz.domain.kinds.faithful import RANDOM_ORDERS
from attnviz.errors import AttentionError, UnsupportedModelError, UsageError
from attnviz.models.head import ClassHead, Part
from tests.helpers.planted import tiny_vit

PATCH = 8
BLACK = (-1.0, -1.0, -1.0)


class Additive:
    """f is the share of the weights (gh, gw) that is on white cells.

    CLS is (f, sqrt(1 - f^2)), of length 1; for the whole, white image it is (1, 0).
    """

    def __init__(self, weights):
        self.weights = torch.as_tensor(weights, dtype=torch.float64)
        self.info = replace(tiny_vit(patch=PATCH, depth=1).info, prefix=1)
        self.images = []

    def run(self, batch):
        self.images.append(len(batch))
        white = (batch.double().mean(dim=1) + 1) / 2
        cells = torch.nn.functional.avg_pool2d(white[:, None], PATCH)[:, 0]
        f = (cells * self.weights).sum(dim=(1, 2)) / self.weights.sum()
        cls = torch.stack([f, (1 - f.clamp(0, 1) ** 2).clamp(min=0).sqrt()], dim=-1)
        return cls[:, None].expand(-1, self.weights.numel() + 1, -1)

    def measured(self, request=None, **maps):
        request = request or FaithfulRequest(baseline="black")
        image = torch.ones(3, *(PATCH * side for side in self.weights.shape))
        f = score_of(self, request, image)
        return measure(HiddenCells(self, image, BLACK, f), request, maps)


def areas(maps):
    return {row.pop("map"): row for row in maps.rows()}


def test_an_additive_model_by_hand():
    weights = np.float32([[0.1, 0.4], [0.2, 0.3]])
    rows = areas(Additive(weights).measured(own=weights, reversed=-weights))
    # f after 0, 1, ... 4 cells: 1, .6, .3, .1, 0 and 0, .4, .7, .9, 1; the steps are quarters.
    assert rows["own"]["deletion"] == pytest.approx((0.5 + 0.6 + 0.3 + 0.1) / 4, abs=1e-6)
    assert rows["own"]["insertion"] == pytest.approx((0.4 + 0.7 + 0.9 + 0.5) / 4, abs=1e-6)
    assert rows["own"]["deletion_reversed"] == pytest.approx((0.5 + 0.9 + 0.7 + 0.4) / 4, abs=1e-6)
    assert rows["own"]["insertion_reversed"] == pytest.approx((0.1 + 0.3 + 0.6 + 0.5) / 4, abs=1e-6)
    assert rows["own"]["saco"] == 1
    assert rows["reversed"]["deletion"] == pytest.approx(0.625, abs=1e-6)
    assert rows["reversed"]["saco"] == -1


@pytest.mark.parametrize("grid", [(7, 9), (10, 10), (3, 4), (1, 1), (1, 13)])
def test_an_additive_model_on_any_grid(grid):
    rng = np.random.default_rng(3)
    weights = rng.random(grid).astype(np.float32)
    weights /= weights.sum()
    made = Additive(weights).measured(own=weights, reversed=-weights)
    high = np.sort(weights.ravel().astype(np.float64))[::-1]
    counts = (made.shares.astype(np.float64) * high.size).round().astype(int)
    assert (counts[0], counts[-1], len(counts)) == (0, high.size, 21)
    deleted = np.array([1 - high[:count].sum() for count in counts])
    np.testing.assert_allclose(made.deletion.highest[0], deleted, atol=1e-6)
    np.testing.assert_allclose(made.insertion.highest[0], 1 - deleted, atol=1e-6)
    np.testing.assert_allclose(made.deletion.lowest[1], deleted, atol=1e-6)
    expected = trapezoid(deleted, counts / high.size)
    assert areas(made)["own"]["deletion"] == pytest.approx(expected, abs=1e-6)
    if high.size > 1:
        np.testing.assert_allclose(made.saco, [1, -1])


def test_a_constant_map_scores_as_random():
    rng = np.random.default_rng(8)
    weights = rng.random((9, 11)).astype(np.float32)
    weights /= weights.sum()
    constant = np.full((9, 11), 0.3, np.float32)
    made = Additive(weights).measured(constant=constant, own=weights)
    assert made.saco[0] == 0
    for curves in made.curves.values():
        area, of_random = made.area(curves.highest[0]), [made.area(c) for c in curves.random]
        assert min(of_random) < area < max(of_random)
        assert not min(of_random) < made.area(curves.highest[1]) < max(of_random)
    # Where every cell counts the same, every order does.
    same = np.full((9, 11), 1 / 99, np.float32)
    rows = areas(Additive(same).measured(constant=constant))
    assert rows["constant"]["deletion"] == pytest.approx(rows["random orders"]["deletion"])
    assert rows["random orders, s.d."]["deletion"] == pytest.approx(0, abs=1e-7)


def test_saco_as_algorithm_1_of_the_paper():
    rng = np.random.default_rng(0)
    values, influence = rng.normal(size=(6, 10)).astype(np.float32), rng.normal(size=10)
    groups = rank_groups(ranked(values))
    assert [group.size for group in groups] == [6] * 10
    s = [float(values.ravel().astype(float)[group].sum()) for group in groups]
    total = weights = 0.0
    for i in range(9):
        for j in range(i + 1, 10):
            weight = s[i] - s[j] if influence[i] >= influence[j] else -(s[i] - s[j])
            total, weights = total + weight, weights + abs(weight)
    assert saco(values, groups, influence) == pytest.approx(total / weights)
    # By hand: groups of 3, 2, 1 with the influences 1, 3, 2; the pairs weigh -1, -2 and 1.
    three = [np.array([cell]) for cell in range(3)]
    assert saco(np.float32([[3, 2, 1]]), three, np.array([1, 3, 2])) == pytest.approx(-0.5)


def test_equal_values_rank_in_reading_order():
    assert ranked(np.float32([[1, 2, 1], [2, 1, 2]])).tolist() == [1, 3, 5, 0, 2, 4]
    values = np.random.default_rng(0).integers(0, 3, (20, 30)).astype(np.float32)
    assert ranked(values).tolist() == sorted(range(600), key=lambda cell: -values.ravel()[cell])


def test_steps_are_equal_and_have_both_ends():
    assert cell_counts(40, chefer=False) == list(range(0, 41, 2))
    counts = cell_counts(37, chefer=False)
    assert counts == sorted(counts)
    assert [a + b for a, b in zip(counts, reversed(counts), strict=True)][:10] == [37] * 10
    assert max(abs(c - 37 * k / 20) for k, c in enumerate(counts)) <= 0.5
    assert cell_counts(40, chefer=True) == [4, 8, 12, 16, 20, 24, 28, 32, 36]


@pytest.mark.parametrize(
    "options", [{}, {"baseline": "black"}, {"chefer": True}, {"show": ("mean", "score", "max")}]
)
def test_the_cost_is_what_is_said_and_images_go_through_together(options):
    request = FaithfulRequest(**options)
    rng = np.random.default_rng(1)
    weights = rng.random((10, 20)).astype(np.float32)
    model = Additive(weights / weights.sum())
    model.measured(request, **{name: rng.random((10, 20)) for name in request.show})
    most = images_in_a_pass(201)
    # The highest and the lowest tenth of each map are a step of deletion and a group of SaCo.
    assert sum(model.images) == most_passes(request) - 2 * len(request.show)
    assert max(model.images) == most > 1
    assert len(model.images) <= sum(model.images) / most + 9


def test_random_orders_are_those_of_the_seed():
    weights = np.random.default_rng(2).random((6, 6)).astype(np.float32)
    weights /= weights.sum()
    model = Additive(weights)
    first, same, other = (
        model.measured(FaithfulRequest(seed=seed, baseline="black"), own=weights)
        for seed in (4, 4, 5)
    )
    assert first.deletion.random.shape == (RANDOM_ORDERS, 21)
    np.testing.assert_array_equal(first.deletion.random, same.deletion.random)
    assert (first.deletion.random != other.deletion.random).any()
    assert len(np.unique(first.deletion.random, axis=0)) == RANDOM_ORDERS


# --- a ViT ------------------------------------------------------------------------------------


def image_of(seed=0, batch=1):
    torch.manual_seed(seed)
    return torch.randn(batch, 3, 24, 40).cumsum(dim=-1) / 4


@pytest.fixture(scope="module")
def vit():
    return tiny_vit(depth=2)


def with_classifier(model, classes=5):
    torch.manual_seed(6)
    weight = torch.randn(classes, model.info.width)
    head = ClassHead((Part(slice(0, 1), weight),), torch.zeros(classes), torch.nn.Identity())
    copy = model.replica()
    copy.head, copy.info = head, replace(model.info, classes=classes)
    return copy


def cells_painted(image, cells, paint, patch=8):
    changed = image.clone()
    for row, column in cells:
        area = (slice(None), slice(row * patch, row * patch + patch))
        area += (slice(column * patch, column * patch + patch),)
        changed[area] = paint[area]
    return changed


@pytest.mark.parametrize("class_index", [None, 2])
def test_the_curves_of_a_vit_against_plain_loops(vit, class_index):
    model, image = with_classifier(vit), image_of()[0]
    request = FaithfulRequest(show=("mean", "rollout"), class_index=class_index)
    (made,) = faithful_maps(model, image[None], request, [BLACK])

    def f(changed):
        with torch.no_grad():
            cls = model.module.forward_features(changed[None])[:, 0]
            if class_index is None:
                whole = model.module.forward_features(image[None])[:, 0]
                return float(cosine_similarity(cls.double(), whole.double()))
            return float((cls @ model.head._parts[0].weight.T).softmax(-1)[0, class_index])

    expected_maps = [
        compute(model, image[None], [], HeadsRequest(distance=False))[0].attention.mean(axis=0),
        compute(model, image[None], [], RolloutRequest())[0].rollout,
    ]
    np.testing.assert_array_equal(made.maps, expected_maps)
    grey = image.mean(dim=(1, 2), keepdim=True).expand_as(image)
    blurred = torch.stack(
        [torch.from_numpy(gaussian_filter(channel.numpy(), BLUR_SIGMA * 24, truncate=3,
                                          mode="nearest", radius=3)) for channel in image]
    )  # fmt: skip
    for index, values in enumerate(made.maps):
        order = sorted(np.ndindex(3, 5), key=lambda cell: -values[cell])
        for step, share in enumerate(made.shares):
            count = round(float(share) * 15)
            assert made.deletion.highest[index, step] == pytest.approx(
                f(cells_painted(image, order[:count], grey)), abs=2e-6
            )
            assert made.insertion.lowest[index, step] == pytest.approx(
                f(cells_painted(image, order[: 15 - count], blurred)), abs=2e-6
            )
        groups = np.array_split(np.arange(15), 10)
        for number, group in enumerate(groups):
            without = f(cells_painted(image, [order[rank] for rank in group], grey))
            assert made.influence[index, number] == pytest.approx(f(image) - without, abs=2e-6)
    assert made.value == pytest.approx(f(image), abs=1e-6)


def test_blur_is_that_of_scipy():
    image = image_of()[0]
    made = painted(image, Baseline.BLUR, BLACK)
    sigma = BLUR_SIGMA * 24
    expected = gaussian_filter(image.numpy(), (0, sigma, sigma), mode="nearest", radius=3)
    np.testing.assert_allclose(made, expected, atol=1e-5)
    large = torch.rand(1, 448, 224).expand(3, -1, -1)
    ten_pixels = gaussian_filter(large[0].numpy(), 10, mode="nearest", radius=30)
    np.testing.assert_allclose(painted(large, Baseline.BLUR, BLACK)[2], ten_pixels, atol=1e-5)
    flat = torch.full((3, 24, 40), 0.7)
    torch.testing.assert_close(painted(flat, Baseline.BLUR, BLACK), flat)


def test_black_is_that_of_the_images_own_normalisation():
    model = attnviz.load_model("demo")
    pixels = np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)
    pixels[:8, :8] = 0
    image = attnviz.prepare(pixels, model, size="original")
    np.testing.assert_array_equal(image.tensor[:, 0, 0], np.float32(image.black))
    paint = painted(torch.from_numpy(image.tensor), Baseline.BLACK, image.black)
    assert (paint == torch.from_numpy(image.tensor)[:, :1, :1]).all()


def test_images_of_a_batch_are_measured_alone(vit):
    batch = image_of(batch=2)
    request = FaithfulRequest(show=("mean", "relevance", "score", "contribution", "random"))
    together = faithful_maps(vit, batch, request, [BLACK] * 2)
    for image, made in zip(batch, together, strict=True):
        (alone,) = faithful_maps(vit, image[None], request, [BLACK])
        for name, array in alone.arrays().items():
            if name != "names":
                np.testing.assert_allclose(made.arrays()[name], array, atol=2e-5, err_msg=name)


def test_maps_of_a_class_are_those_of_their_commands(vit):
    model, image = with_classifier(vit), image_of()
    request = FaithfulRequest(show=("relevance", "contribution", "head:-1"), class_index=1)
    (made,) = faithful_maps(model, image, request, [BLACK])
    for values, method in zip(made.maps, ("chefer", "contribution"), strict=False):
        wanted = RelevanceRequest(method, class_index=1)
        np.testing.assert_array_equal(values, compute(model, image, [], wanted)[0].relevance)
    assert made.names == ("relevance", "contribution", "head:1")


@pytest.mark.parametrize("baseline", [None, "black"])
def test_without_a_class_relevance_is_for_the_way_from_the_hidden_image(vit, baseline):
    image = image_of()
    request = FaithfulRequest(show=("relevance", "contribution"), baseline=baseline)
    (made,) = faithful_maps(vit, image, request, [BLACK])
    hidden = painted(image[0], request.baselines[0], BLACK)[None]
    with torch.no_grad():
        whole, none = (vit.module.forward_features(each)[0, 0] for each in (image, hidden))
    direction = (whole - none) / (whole - none).square().sum()
    assert float(direction @ whole - direction @ none) == pytest.approx(1)
    # The same as a class whose logit is that projection.
    model = with_classifier(vit, classes=1)
    model.head._parts = (Part(slice(0, 1), direction[None]),)
    for values, method in zip(made.maps, ("chefer", "contribution"), strict=True):
        wanted = RelevanceRequest(method, class_index=0)
        expected = compute(model, image, [], wanted)[0].relevance
        assert expected.max() > 1e-3
        np.testing.assert_allclose(values, expected, atol=1e-6)


def test_an_image_that_is_what_hides_it_has_no_relevance(vit):
    image = torch.full((1, 3, 24, 40), -1.0)
    request = FaithfulRequest(show=("relevance", "contribution"), baseline="black")
    (made,) = faithful_maps(vit, image, request, [BLACK])
    assert (made.maps == 0).all()
    np.testing.assert_allclose(made.deletion.highest, 1)
    assert made.saco.tolist() == [0, 0]


def test_a_model_without_cls_is_measured_by_its_mean_patch():
    model, image = tiny_vit(cls=False, depth=1), image_of()
    (made,) = faithful_maps(model, image, FaithfulRequest(show=("mean", "rollout")), [BLACK])
    assert made.deletion.highest[0, 0] == pytest.approx(1)
    for name in ("score", "contribution"):
        with pytest.raises(UnsupportedModelError, match=f"--show {name}: tiny has no CLS token"):
            check_faithful(model.info, FaithfulRequest(show=(name,)))


def test_chefers_protocol_is_black_from_10_to_90_percent(vit):
    image = image_of()
    (made,) = faithful_maps(vit, image, FaithfulRequest(show=("mean",), chefer=True), [BLACK])
    np.testing.assert_allclose(made.shares, (np.arange(1, 10) * 1.5 + 0.5).astype(int) / 15)
    assert made.insertion is None
    assert made.baselines == (Baseline.BLACK, Baseline.BLACK)
    whole = FaithfulRequest(show=("mean",), baseline="black")
    (other,) = faithful_maps(vit, image, whole, [BLACK])
    known = dict(zip((other.shares * 15).round(), other.deletion.highest[0], strict=True))
    for share, value in zip(made.shares, made.deletion.highest[0], strict=True):
        assert known.get(round(share * 15), value) == pytest.approx(value, abs=1e-6)
    flat = np.full(9, 0.25, np.float32)
    assert made.area(flat) == pytest.approx(0.25)


def test_what_is_not_finite_is_an_error(vit):
    hidden = HiddenCells(vit, image_of()[0], BLACK, lambda tokens: tokens[:, 0, 0].double() / 0)
    with pytest.raises(AttentionError, match="not finite"):
        hidden.values([(Baseline.BLACK, np.ones((3, 5), np.bool_))])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"show": ("rolout",)}, "no map is called 'rolout'"),
        ({"show": ("head",)}, "no map is called 'head'"),
        ({"show": ()}, "no map is named"),
        ({"chefer": True, "baseline": "blur"}, "--chefer paints cells black"),
    ],
)
def test_what_no_model_can_honour(options, said):
    with pytest.raises(UsageError, match=said):
        FaithfulRequest(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"show": ("head:2",)}, "head 2 does not exist"),
        ({"layer": 7}, "layer 7 does not exist"),
        ({"class_index": 9}, "--class 9 does not exist"),
    ],
)
def test_what_this_model_cannot_honour(vit, options, said):
    with pytest.raises(UsageError, match=said):
        check_faithful(with_classifier(vit).info, FaithfulRequest(**options))


def test_one_logit_has_no_probability(vit):
    with pytest.raises(UsageError, match="no probability of a class"):
        check_faithful(with_classifier(vit, classes=1).info, FaithfulRequest(class_index=0))


@pytest.mark.parametrize(
    ("stride", "cells", "expected"),
    [
        (8, 2, [0] * 8 + [1] * 8),
        # Cells of 4 px from 2 px on: two pixels at either edge belong to the nearest.
        (4, 3, [0] * 6 + [1] * 4 + [2] * 6),
    ],
)
def test_overlapping_patches_hide_their_cells_and_the_edges(stride, cells, expected):
    info = replace(tiny_vit().info, patch=8, stride=stride)
    assert cells_of_pixels(16, cells, info).tolist() == expected
