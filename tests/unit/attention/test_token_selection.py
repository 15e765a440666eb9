"""Low-frequency energy against a DFT matrix written out, pruning runs against plain code."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz.attention.capture import intercepted
from attnviz.attention.checks import check_request, choose_pruning
from attnviz.attention.low_frequency import low_frequency_energy, low_pass
from attnviz.attention.score import score_maps
from attnviz.domain.kinds import ScoreRequest
from attnviz.errors import UnsupportedModelError, UsageError
from tests.helpers.planted import backbone_of, tiny_vit

BATCH = torch.randn(2, 3, 32, 24, generator=torch.Generator().manual_seed(0))  # 4 x 3 patches


def energy_by_matrix(tokens, cutoff=0.15):
    """The factor with the DFT as a matrix, entry by entry."""
    count = len(tokens)
    index = np.arange(count)
    forward = np.exp(-2j * np.pi * np.outer(index, index) / count)
    gain = 1 - np.exp(-((index - (count - 1) / 2) ** 2) / (2 * (count * cutoff / 2) ** 2))
    filtered = (forward.conj() @ np.diag(gain) @ forward @ tokens) / count
    return np.abs(filtered).sum(axis=1) / np.abs(tokens).sum(axis=1).mean()


@pytest.mark.parametrize("count", [1, 2, 7, 12])
def test_low_frequency_energy_by_a_matrix(count):
    tokens = np.random.default_rng(count).standard_normal((count, 5)).astype(np.float32)
    expected = energy_by_matrix(tokens.astype(np.float64))
    np.testing.assert_allclose(low_frequency_energy(tokens), expected, rtol=1e-5)


def test_low_frequency_energy_by_hand():
    # Of two tokens the window is centred at 1/2 and 0.15 wide: both coefficients pass unchanged
    # but for exp(-0.25 / 0.045), so the factor is each token's share of the mean size.
    gain = 1 - np.exp(-0.25 / 0.045)
    np.testing.assert_allclose(low_pass(2), [gain, gain])
    energy = low_frequency_energy(np.array([[1, 0], [2, -1]], np.float32))
    np.testing.assert_allclose(energy, [0.5 * gain, 1.5 * gain], rtol=1e-6)
    # Equal tokens have the lowest frequency alone; alternating ones the highest.
    smooth, rough = np.ones((64, 1), np.float32), np.resize([1, -1], (64, 1)).astype(np.float32)
    assert low_frequency_energy(smooth).min() > 0.999
    assert low_frequency_energy(rough).max() < 0.01
    assert (low_frequency_energy(np.zeros((4, 2), np.float32)) == 0).all()


def blocks_by_hand(backbone, image, ratios, *, lfe):
    """Scores and kept patches of every block, with tokens removed between attention and MLP."""
    module, prefix = backbone.module, backbone.info.prefix
    tokens = []
    handle = module.blocks[0].register_forward_pre_hook(lambda _m, inputs: tokens.append(inputs[0]))
    with torch.no_grad():
        backbone.run(image[None])
        handle.remove()
        x, left, steps = tokens[0], np.arange(12), []
        for block, ratio in zip(module.blocks, ratios, strict=True):
            normed = block.norm1(x)
            heads, width = block.attn.num_heads, x.shape[-1]
            qkv = block.attn.qkv(normed)[0].reshape(-1, 3, heads, width // heads)
            q, k, v = qkv.permute(1, 2, 0, 3)
            a = (q @ k.transpose(1, 2) * block.attn.scale).softmax(dim=-1)
            x = x + block.attn.proj((a @ v).transpose(0, 1).reshape(1, -1, width))
            a = a.double().numpy()
            cls_term = a[:, 0, prefix:] * a[:, prefix:, 0].mean(axis=1, keepdims=True)
            patch_term = a[:, 0, :1] * a[:, prefix:, prefix:].mean(axis=1)
            score = (cls_term + patch_term).mean(axis=0)
            if lfe:
                score = score * energy_by_matrix(x[0, prefix:].double().numpy())
            kept = np.sort(np.argsort(-score, kind="stable")[: max(1, round(12 * ratio))])
            steps.append((left, score, left[kept]))
            x = torch.cat([x[:, :prefix], x[:, prefix + kept]], dim=1)
            x = x + block.mlp(block.norm2(x))
            left = left[kept]
    return steps


@pytest.mark.parametrize("lfe", [False, True])
@pytest.mark.parametrize("registers", [0, 2])
def test_a_pruning_run_is_that_of_plain_code(lfe, registers):
    backbone = tiny_vit(registers=registers)
    ratios = (0.75, 0.5, 0.25)
    request = ScoreRequest(layers="all", keep_ratio=ratios, lfe=lfe)
    found = score_maps(backbone, BATCH, request)
    assert len(found) == 2
    for maps, image in zip(found, BATCH, strict=True):
        expected = blocks_by_hand(backbone, image, ratios, lfe=lfe)
        for step, (left, score, kept) in zip(maps.steps, expected, strict=True):
            np.testing.assert_array_equal(np.flatnonzero(step.present), left)
            np.testing.assert_array_equal(np.flatnonzero(step.kept), kept)
            np.testing.assert_allclose(step.of_present(step.score), score, rtol=2e-5)
            assert np.isnan(step.score[~step.present]).all()
        assert maps.arrays()["score"].shape == (3, 4, 3)
        assert [row["left"] for row in maps.rows()] == [12, 9, 6]
        assert [row["kept"] for row in maps.rows()] == [9, 6, 3]
        assert len(maps.patch_rows()) == 12 + 9 + 6
        np.testing.assert_array_equal(maps.kept, maps.steps[-1].kept)
    # The two images keep other patches: each has its own.
    assert (found[0].kept != found[1].kept).any()


def test_what_keeps_everything_is_the_score_without_pruning():
    backbone = tiny_vit()
    whole = score_maps(backbone, BATCH, ScoreRequest(layers="all", keep_ratio=1.0, lfe=True))
    for layer in range(3):
        single = score_maps(backbone, BATCH, ScoreRequest(layer=layer, lfe=True))
        for image in range(2):
            np.testing.assert_allclose(
                whole[image].steps[layer].score, single[image].score, rtol=1e-5
            )


def test_patches_that_are_left_keep_their_rotary_positions():
    import timm

    torch.manual_seed(0)
    module = timm.create_model(
        "vit_small_patch16_dinov3", img_size=64, embed_dim=64, depth=2, num_heads=2
    ).eval()
    backbone = backbone_of(module.requires_grad_(False), registers=4)
    image = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    (maps,) = score_maps(backbone, image, ScoreRequest(layers="all", keep_ratio=(0.5, 0.25)))
    # An independent run: the tokens of block 1 with the dropped ones masked out of its attention.
    left = np.flatnonzero(maps.steps[1].present.ravel())
    hidden = np.setdiff1d(np.arange(16), left)
    rows = []

    def block_one(call):
        if call.layer == 1:
            logits = call.query.float() @ call.key.float().transpose(-2, -1) * call.scale
            logits[..., 5 + hidden] = -torch.inf
            rows.append(logits.softmax(-1)[0].double().numpy())

    with torch.no_grad(), intercepted(backbone, image, 2, block_one):
        backbone.run(image)
    a = rows[0][:, np.r_[0:5, 5 + left]][:, :, np.r_[0:5, 5 + left]]
    score = a[:, 0, 5:] * a[:, 5:, 0].mean(axis=1, keepdims=True)
    score = (score + a[:, 0, :1] * a[:, 5:, 5:].mean(axis=1)).mean(axis=0)
    np.testing.assert_allclose(maps.score.ravel()[left], score, rtol=1e-4)


def test_ratios_are_those_of_equal_runs_of_the_layers():
    info = tiny_vit(depth=6).info
    shared = choose_pruning(info, ScoreRequest(layers="all", keep_ratio=(0.9, 0.7, 0.5)))
    assert shared == {0: 0.9, 1: 0.9, 2: 0.7, 3: 0.7, 4: 0.5, 5: 0.5}
    own = choose_pruning(info, ScoreRequest(layers=(-1, 1), keep_ratio=(0.7, 0.2)))
    assert own == {1: 0.7, 5: 0.2}
    assert choose_pruning(info, ScoreRequest(layer=2, keep_ratio=0.3)) == {2: 0.3}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ScoreRequest(keep_ratio=(0.9, 0.5)), "2 ratios, but only one layer"),
        (ScoreRequest(layers=(0,), keep_ratio=(0.9, 0.5)), "2 ratios for 1 layers"),
        (ScoreRequest(layers="all", keep_ratio=(0.5, 0.9)), "higher than the one before"),
        (ScoreRequest(layers=(0,), layer=0), "exclude each other"),
        (ScoreRequest(layers=(3,)), "layer 3 does not exist"),
        (ScoreRequest(layers="all", keep_ratio=(0.5, 0.0)), "keep ratio 0"),
    ],
)
def test_what_does_not_go_together_is_refused(request_, message):
    with pytest.raises(UsageError, match=message):
        check_request(tiny_vit().info, request_)


def test_blocks_that_the_energy_or_pruning_is_not_defined_for_are_refused():
    import timm

    class Post(torch.nn.Module):
        """A block whose second norm comes after the MLP."""

        def __init__(self, block):
            super().__init__()
            self.attn, self.norm1, self.norm2, self.mlp = (
                block.attn, block.norm1, block.norm2, block.mlp,
            )  # fmt: skip

        def forward(self, x, **_):
            x = x + self.attn(self.norm1(x))
            return x + self.norm2(self.mlp(x))

    backbone = tiny_vit(depth=1)
    backbone.module.blocks[0] = Post(backbone.module.blocks[0])
    with pytest.raises(UnsupportedModelError, match="low-frequency energy is not defined"):
        score_maps(backbone, BATCH, ScoreRequest(lfe=True))
    beit = timm.create_model(
        "beit_base_patch16_224", img_size=32, embed_dim=32, depth=2, num_heads=2
    ).eval()
    biased = backbone_of(beit.requires_grad_(False))
    with pytest.raises(UnsupportedModelError, match="biases for pairs of positions"):
        score_maps(biased, torch.zeros(1, 3, 32, 32), ScoreRequest(layers="all"))
