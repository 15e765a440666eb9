"""Finding register neurons in made-up models, where the right answer is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import attnviz
from attnviz.attention.outliers import NeuronScores, outlier_threshold, token_norms
from attnviz.domain import DrawStyle
from attnviz.domain.registers import RegisterSearch
from attnviz.errors import AttentionError, UsageError
from attnviz.models.backbone import Backbone
from attnviz.stages.registers import RegisterFinder
from tests.helpers import checkpoints, numpy_vit
from tests.helpers.planted import tiny_vit
from tests.helpers.writer_neurons import (
    LAYER,
    NEURON,
    PATCH,
    planted_model,
    with_hash,
)


def images_of(model, count, size=32):
    """Prepared images of noise."""
    rng = np.random.default_rng(3)
    pixels = rng.integers(0, 255, (count, size, size, 3), dtype=np.uint8)
    return [attnviz.prepare(each, model) for each in pixels]


@pytest.fixture(scope="module")
def found():
    images = images_of(tiny_vit(), 3)
    batch = torch.from_numpy(np.stack([image.tensor for image in images]))
    model = planted_model(batch)
    return model, images, attnviz.registers(model, images, threshold=50.0)


def test_the_planted_neuron_is_found_first(found):
    _, _, maps = found
    neurons = maps.neurons
    assert neurons.neurons[0][:2] == (LAYER, NEURON)
    assert neurons.neurons[0].score > 4 * neurons.neurons[1].score
    assert (neurons.images, neurons.outliers, neurons.max_layer) == (3, 3, LAYER)
    assert len(neurons.neurons) == 50
    scores = [neuron.score for neuron in neurons.neurons]
    assert scores == sorted(scores, reverse=True)
    assert maps.shown[0].outliers.ravel().nonzero()[0].tolist() == [PATCH]


def test_the_default_threshold_finds_it_too(found):
    model, images, _ = found
    maps = attnviz.registers(model, images, top=1)
    norms = maps.patch_norm.before.astype(np.float64)
    spread = np.median(np.abs(norms - np.median(norms)))
    assert maps.neurons.threshold == pytest.approx(np.median(norms) + 4 * 1.4826 * spread)
    assert [neuron[:2] for neuron in maps.neurons.neurons] == [(LAYER, NEURON)]


def test_the_threshold_by_hand():
    # Median 3, deviations 2 1 0 1 97: their median is 1.
    values = np.array([1, 2, 3, 4, 100], np.float32)
    assert outlier_threshold(values) == pytest.approx(3 + 4 * 1.4826)


def test_the_norms_and_masses_are_those_of_a_pass_in_numpy(found):
    model, images, maps = found
    weights = numpy_vit.state_of(model.module)
    places = tuple(neuron[:2] for neuron in maps.neurons.neurons)
    largest, median, mass, register = [], [], [], []
    for image in images:
        before, plain = numpy_vit.forward(weights, image.tensor, patch=8, heads=2)
        after, attention = numpy_vit.forward(
            weights, image.tensor, patch=8, heads=2, neurons=places, registers=1
        )
        largest.append([before[:, 1:].max(axis=1), after[:, 1:-1].max(axis=1)])
        median.append([np.median(before[:, 1:], axis=1), np.median(after[:, 1:-1], axis=1)])
        mass.append([each.mean(axis=1)[:, 0, 1 + PATCH] for each in (plain, attention)])
        register.append([attention.mean(axis=1)[:, 0, -1], after[:, -1]])
    for values, pair in ((largest, maps.largest_norm), (median, maps.median_norm),
                         (mass, maps.outlier_mass)):  # fmt: skip
        np.testing.assert_allclose(np.stack(pair), np.mean(values, axis=0), rtol=1e-4, atol=1e-6)
    expected = np.mean(register, axis=0)
    np.testing.assert_allclose(maps.register_mass, expected[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(maps.register_norm, expected[1], rtol=1e-4)
    assert maps.largest_norm.before[-1] > 5 * maps.largest_norm.after[-1]


def test_scores_are_means_over_images_of_means_over_outliers(found):
    model, images, _ = found
    outliers = np.zeros((3, 16), bool)
    outliers[0, [2, 5, PATCH]] = True
    outliers[2, 1] = True  # the second image has none and does not count
    hidden = []
    handle = model.module.blocks[0].mlp.fc2.register_forward_pre_hook(
        lambda _m, given: hidden.append(given[0][0, 1:].double().numpy())
    )
    for image in images:
        model.run(model.batch([image]))
    handle.remove()
    scores = NeuronScores(0)
    for image, chosen in zip(images, outliers, strict=True):
        scores.add(model, model.batch([image]), chosen)
    expected = (np.abs(hidden[0][[2, 5, PATCH]]).mean(axis=0) + np.abs(hidden[2][1])) / 2
    strongest = scores.strongest(200, sparse=False)
    assert len(strongest) == expected.size
    for layer, index, score in strongest:
        assert layer == 0
        assert math.isclose(score, expected[index], rel_tol=1e-5)


def test_sparse_leaves_out_what_is_on_for_most_tokens(found):
    model, images, _ = found
    dense = tiny_vit()
    dense.module.blocks[0].mlp.fc1.bias[7] = 40.0  # on everywhere, and strong
    dense = with_hash(dense)
    options = {"threshold": 1.0, "max_layer": 0, "top": 3}
    every, sparse = (
        attnviz.registers(dense, images, sparse=sparse, **options).neurons.neurons
        for sparse in (False, True)
    )
    assert every[0][:2] == (0, 7)
    assert (0, 7) not in [neuron[:2] for neuron in sparse]
    assert len(sparse) == 3
    planted = attnviz.registers(model, images, threshold=50.0, top=1, sparse=True)
    assert planted.neurons.neurons[0][:2] == (LAYER, NEURON)


def test_where_every_neuron_is_on_none_is_sparse(found):
    _, images, _ = found
    dense = tiny_vit()
    dense.module.blocks[0].mlp.fc1.bias.fill_(40.0)
    with pytest.raises(AttentionError, match=r"no neuron up to layer 0 is below 0\.5"):
        attnviz.registers(with_hash(dense), images, threshold=1.0, max_layer=0, sparse=True)


def test_half_precision_finds_the_same_neuron(found, tmp_path):
    model, images, maps = found
    path = checkpoints.save(tmp_path / "planted.pth", model.module.state_dict())
    half = attnviz.load_model(checkpoint=path, heads=2, precision="bfloat16")
    rough = attnviz.registers(half, images, threshold=50.0, top=3)
    assert rough.neurons.neurons[0][:2] == (LAYER, NEURON)
    ratio = rough.largest_norm.before / maps.largest_norm.before
    np.testing.assert_allclose(ratio, 1, atol=0.05)
    assert rough.largest_norm.before[-1] > 5 * rough.largest_norm.after[-1]


def test_neurons_come_from_the_layers_that_are_asked_for(found):
    model, images, _ = found
    maps = attnviz.registers(model, images, threshold=50.0, max_layer=0)
    assert {neuron.layer for neuron in maps.neurons.neurons} == {0}
    maps = attnviz.registers(model, images, threshold=50.0, max_layer=-1)
    assert {neuron.layer for neuron in maps.neurons.neurons} == {0, 1, 2}


def test_without_outliers_it_says_so(found):
    model, images, _ = found
    with pytest.raises(AttentionError, match=r"no patch of 3 images .* the threshold 1e\+04"):
        attnviz.registers(model, images, threshold=1e4)
    with pytest.raises(AttentionError, match="no patch"):  # the outlier is written in layer 1
        attnviz.registers(model, images, threshold=50.0, layer=0)


def test_more_registers_share_the_mass(found):
    model, images, one = found
    maps = attnviz.registers(model, images, threshold=50.0, register_count=3)
    assert maps.count == 3
    np.testing.assert_allclose(maps.register_norm, one.register_norm, rtol=0.1)
    assert (maps.register_mass > one.register_mass).all()


def test_a_model_without_cls_is_read_by_the_mean_patch():
    images = images_of(tiny_vit(cls=False), 2)
    batch = torch.from_numpy(np.stack([image.tensor for image in images]))
    model = planted_model(batch, cls=False)
    maps = attnviz.registers(model, images, threshold=50.0, top=2)
    assert maps.neurons.neurons[0][:2] == (LAYER, NEURON)
    assert maps.cls_norm is None
    assert "cls_norm" not in maps.arrays()
    found = token_norms(model, model.batch(images[:1]))
    np.testing.assert_allclose(found.attention.sum(axis=1), 1, atol=1e-5)


def test_dinov2_large_is_measured_one_layer_earlier():
    model = with_hash(tiny_vit())
    for name, layer in (("vit_large_patch14_dinov2.lvd142m", 1), ("vit_base_patch14_dinov2", 2)):
        named = Backbone(model.module, replace(model.info, timm_name=name), offset=False)
        finder = RegisterFinder(named, RegisterSearch())
        assert finder._layer == layer


def test_weights_without_a_file_are_refused():
    with pytest.raises(UsageError, match="no weights of a file"):
        attnviz.registers(tiny_vit(), [])


def test_the_list_goes_through_its_file(found, tmp_path):
    from attnviz.domain.register_neurons import read_neurons

    _, _, maps = found
    path = tmp_path / "neurons.json"
    path.write_text(maps.neurons.to_json(), encoding="utf-8")
    assert read_neurons(path) == maps.neurons


def test_figure_pages_hold_every_panel(found):
    model, _, maps = found
    for width in (7.0, 3.35, 2.6):
        figures = attnviz.draw_registers(maps, model, DrawStyle(width=width))
        texts = [line["text"] for figure in figures for artist in figure.artists
                 if hasattr(artist, "lines") for line in artist.lines]  # fmt: skip
        assert any("Norm of tokens by layer" in text for text in texts)
        assert any(text == f"layer {LAYER}, neuron {NEURON}" for text in texts)
        assert any("before" in text for text in texts)
