"""Test-time registers against a forward pass in numpy, and what they may not change."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from timm.layers import SwiGLUPacked

import attnviz
from attnviz.attention.compute import compute
from attnviz.attention.outliers import token_norms
from attnviz.attention.verify import verify
from attnviz.domain import Box, FitGeometry, Positions, RelevanceMethod, Size
from attnviz.domain.kinds import KINDS, HeadsRequest, RolloutRequest
from attnviz.errors import UnsupportedModelError, UsageError
from attnviz.models.added_registers import output_projections
from attnviz.models.backbone import Backbone
from attnviz.models.head import ClassHead, Part
from tests.helpers import numpy_vit
from tests.helpers.kinds import BY_DEFAULT
from tests.helpers.planted import backbone_of, dense_attention, tiny_vit
from tests.helpers.writer_neurons import (
    LAYER,
    NEURON,
    batch_of,
    neuron_list,
    planted_model,
    with_hash,
)

PLACES = ((LAYER, NEURON), (0, 3), (2, 60), (2, 5))
BATCH = batch_of(0, 1, 2)
GEOMETRY = FitGeometry(Size(32, 32), Size(32, 32), 8, Box(0, 0, 32, 32))


@pytest.fixture(scope="module")
def planted():
    return planted_model(BATCH)


def expected(model, image, **options):
    weights = numpy_vit.state_of(model.module)
    return numpy_vit.forward(weights, image.double().numpy(), patch=8, heads=2, **options)


def in_order(values, prefix, count):
    """Axes of tokens from prefix, registers, patches to prefix, patches, registers."""
    tokens = values.shape[-1]
    order = [*range(prefix), *range(prefix + count, tokens), *range(prefix, prefix + count)]
    values = values[..., order]
    return values[..., order, :] if values.shape[-2] == tokens else values


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("where", ["first", "last"])
def test_every_norm_and_attention_is_that_of_a_pass_in_numpy(planted, count, where):
    model = planted.with_test_registers(neuron_list(*PLACES), count)
    matrices = dense_attention(model, BATCH).double().numpy()
    for index, image in enumerate(BATCH):
        norms, attention = expected(planted, image, neurons=PLACES, registers=count, where=where)
        found = token_norms(model, image[None])
        np.testing.assert_allclose(in_order(found.norms, 1, count), norms, rtol=2e-5)
        np.testing.assert_allclose(
            in_order(matrices[:, index], 1, count), attention, rtol=0, atol=2e-5
        )
        plain, _ = expected(planted, image)
        assert np.abs(plain - norms[:, : plain.shape[1]]).max() > 100  # the outlier has gone


def test_a_gated_mlp_moves_its_hidden_product():
    options = {"mlp_layer": SwiGLUPacked, "act_layer": torch.nn.SiLU, "mlp_ratio": 4}
    model = with_hash(tiny_vit(**options))
    assert model.output_projections[0].in_features == 64
    added = model.with_test_registers(neuron_list(*PLACES), 1)
    norms, attention = expected(model, BATCH[0], neurons=PLACES, registers=1, gated=True)
    matrices = dense_attention(added, BATCH[:1]).double().numpy()[:, 0]
    np.testing.assert_allclose(in_order(matrices, 1, 1), attention, rtol=0, atol=2e-5)
    found = token_norms(added, BATCH[:1]).norms
    np.testing.assert_allclose(in_order(found, 1, 1), norms, rtol=2e-5)


def test_without_neurons_only_a_zero_token_is_added(planted):
    model = planted.with_test_registers(neuron_list())
    _, attention = expected(planted, BATCH[0], registers=1)
    matrices = dense_attention(model, BATCH[:1]).double().numpy()[:, 0]
    np.testing.assert_allclose(in_order(matrices, 1, 1), attention, rtol=0, atol=2e-5)
    before = dense_attention(planted, BATCH[:1]).double().numpy()[:, 0]
    # A zero token takes part in every softmax: before any block it is the only difference, and
    # rows without it are those of the first layer of the model alone.
    first = in_order(matrices, 1, 1)[0, :, :-1, :-1]
    np.testing.assert_allclose(
        first / first.sum(axis=-1, keepdims=True), before[0], rtol=0, atol=2e-6
    )


def test_a_batch_is_its_images_one_by_one(planted):
    model = planted.with_test_registers(neuron_list(*PLACES), 2)
    together = model.run(BATCH)
    for index in range(len(BATCH)):
        alone = model.run(BATCH[index : index + 1])[0]
        torch.testing.assert_close(together[index], alone, rtol=1e-4, atol=1e-4)
    values = together[:, 1:3]  # the registers of each image
    assert (values[0] - values[1]).abs().max() > 0.01


def test_the_module_is_left_as_it_was(planted):
    before = planted.run(BATCH)
    model = planted.with_test_registers(neuron_list(*PLACES))
    model.run(BATCH)
    assert torch.equal(planted.run(BATCH), before)
    assert (planted.info.prefix, model.info.prefix, model.info.registers) == (1, 2, 1)
    assert model.info.prefix_names == ("CLS", "R1")


@pytest.mark.parametrize("kind", BY_DEFAULT)
def test_every_kind_knows_the_longer_sequence(planted, kind):
    model = planted.with_test_registers(neuron_list(*PLACES), 2)
    request = KINDS[kind].request().keeping_data(save_data=True)
    (maps,) = compute(model, BATCH[:1], [GEOMETRY], request)
    _check_tokens(maps, 3 + 16)


@pytest.mark.parametrize("method", RelevanceMethod)
def test_relevance_knows_the_longer_sequence(planted, method):
    model = planted.with_test_registers(neuron_list(*PLACES), 2)
    pixels = np.random.default_rng(0).integers(0, 255, (2, 32, 32, 3), dtype=np.uint8)
    first, second = (attnviz.prepare(each, model) for each in pixels)
    _check_tokens(attnviz.relevance(model, first, like=second, method=method), 3 + 16)


def _check_tokens(maps, tokens):
    """No array of another number of tokens, patches or prefix tokens; all numbers finite."""
    sizes = {side for values in maps.arrays().values() for side in values.shape}
    assert not sizes & {tokens - 1, tokens - 2, tokens + 1}
    numbers = [values for values in maps.arrays().values() if values.dtype.kind != "U"]
    assert all(np.isfinite(values.astype(float)).all() for values in numbers)
    if hasattr(maps, "prefix") and maps.prefix is not None and np.ndim(maps.prefix):
        assert maps.prefix.shape[-1] == 3


def test_attention_times_v_is_the_models_own(planted):
    assert max(verify(planted.with_test_registers(neuron_list(*PLACES), 2), BATCH)) < 1e-5


def test_the_rollout_goes_through_the_registers(planted):
    model = planted.with_test_registers(neuron_list(*PLACES), 1)
    attention = dense_attention(model, BATCH[:1])[:, 0].double().mean(dim=1).numpy()
    product = np.eye(18)
    for layer in attention:
        mixed = (layer + np.eye(18)) / 2
        product = mixed / mixed.sum(axis=1, keepdims=True) @ product
    request = RolloutRequest(replace(RolloutRequest().options, discard_ratio=0.0))
    (maps,) = compute(model, BATCH[:1], [GEOMETRY], request)
    np.testing.assert_allclose(maps.rollout.ravel(), product[0, 2:], rtol=0, atol=1e-6)
    np.testing.assert_allclose(maps.prefix, product[0, :2], rtol=0, atol=1e-6)


@pytest.mark.parametrize("registers", [0, 2])
def test_rotation_leaves_registers_out(registers):
    module = timm.models.eva.Eva(
        img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=0,
        use_abs_pos_emb=False, use_rot_pos_emb=True, dynamic_img_size=True,
        num_reg_tokens=registers, qkv_fused=True,
    ).eval().requires_grad_(False)  # fmt: skip
    plain = with_hash(backbone_of(module, registers=registers))
    model = plain.with_test_registers(neuron_list())
    # A zero token that is not rotated: the other tokens differ as by one more key in the softmax.
    before, after = (dense_attention(each, BATCH[:1])[0, 0] for each in (plain, model))
    first = 1 + registers
    kept = [*range(first), *range(first + 1, after.shape[-1])]
    rest = after[:, kept][:, :, kept]
    torch.testing.assert_close(rest / rest.sum(-1, keepdim=True), before, rtol=0, atol=1e-5)
    assert module.blocks[0].attn.num_prefix_tokens == first


@pytest.mark.parametrize(
    ("neurons", "message"),
    [
        (neuron_list((0, 1), weights_sha256="00"), "of other weights than tiny.pth"),
        (neuron_list((0, 1), checkpoint_key="student"), "of other weights"),
        (neuron_list((3, 1)), "no neuron 1 in layer 3"),
        (neuron_list((0, 128)), "no neuron 128 in layer 0"),
    ],
)
def test_a_list_for_something_else_is_refused(planted, neurons, message):
    with pytest.raises(UsageError, match=message):
        planted.with_test_registers(neurons)


def test_replicas_and_pickled_models_have_the_registers_too(planted):
    model = planted.with_test_registers(neuron_list(*PLACES), 2)
    expected_tokens = model.run(BATCH)
    for other in (model.replica(), pickle.loads(pickle.dumps(model)), model.to("cpu")):
        assert torch.equal(other.run(BATCH), expected_tokens)


def test_a_norm_before_the_blocks_takes_the_zero_token_as_any_other():
    plain = with_hash(tiny_vit(pre_norm=True))
    torch.nn.init.normal_(plain.module.norm_pre.bias)
    model = plain.with_test_registers(neuron_list())
    entering = []
    handle = model.module.blocks[0].register_forward_pre_hook(
        lambda _m, given: entering.append(given[0])
    )
    model.run(BATCH)
    handle.remove()
    bias = plain.module.norm_pre.bias
    torch.testing.assert_close(entering[0][:, 1], bias.expand(len(BATCH), -1))


def test_a_model_with_test_registers_takes_no_more(planted):
    model = planted.with_test_registers(neuron_list())
    with pytest.raises(UsageError, match="already"):
        model.with_test_registers(neuron_list())


def test_positions_are_resized_as_without_registers():
    # transformers resizes with antialias for trained registers only.
    plain = with_hash(tiny_vit())
    plain = Backbone(plain.module, replace(plain.info, positions=Positions.HF), offset=False)
    model = plain.with_test_registers(neuron_list())
    entering = []
    handle = plain.module.blocks[0].register_forward_pre_hook(
        lambda _m, given: entering.append(given[0])
    )
    smaller = BATCH[:, :, :24, :16]
    plain.run(smaller)
    model.run(smaller)
    handle.remove()
    assert torch.equal(entering[1][:, [0, *range(2, 8)]], entering[0])


def test_classifiers_read_the_same_tokens():
    weight = torch.randn(3, 32)
    bias = torch.zeros(3)
    tokens = torch.randn(2, 17, 32)
    longer = torch.cat([tokens[:, :1], torch.randn(2, 2, 32), tokens[:, 1:]], dim=1)
    for part in (slice(0, 1), slice(1, None)):
        head = ClassHead((Part(part, weight),), bias, torch.nn.Identity())
        moved = head.behind(1, 2)
        assert moved is not None
        torch.testing.assert_close(moved.logits(longer), head.logits(tokens))
    every = ClassHead((Part(slice(0, None), weight),), bias, torch.nn.Identity())
    assert every.behind(1, 2) is None
    patches = every.behind(0, 2)  # of a model without CLS
    assert patches is not None
    longer = torch.cat([torch.randn(2, 2, 32), tokens], dim=1)
    torch.testing.assert_close(patches.logits(longer), every.logits(tokens))


def test_biases_of_relative_positions_are_refused():
    module = timm.create_model(
        "beit_base_patch16_224", img_size=32, patch_size=8, embed_dim=32, depth=1, num_heads=2,
        num_classes=0,
    )  # fmt: skip
    with pytest.raises(UnsupportedModelError, match="relative positions"):
        with_hash(backbone_of(module.eval())).with_test_registers(neuron_list())


def test_blocks_without_neurons_of_their_own_are_refused():
    block = timm.models.vision_transformer.ParallelScalingBlock(32, 2)
    with pytest.raises(UnsupportedModelError, match="neurons of its blocks"):
        output_projections([block], "parallel")


def test_heads_report_the_mass_on_registers(planted):
    model = planted.with_test_registers(neuron_list(*PLACES), 2)
    (maps,) = compute(model, BATCH[:1], [GEOMETRY], HeadsRequest())
    assert maps.prefix.shape == (2, 3)
    total = maps.prefix.sum(axis=1) + maps.attention.sum(axis=(1, 2))
    np.testing.assert_allclose(total, 1, atol=1e-5)
