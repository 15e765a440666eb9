"""Position embeddings at other grids: three rules against implementations without torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image

from attnviz.domain import Positions, Size
from attnviz.models.positions import PositionTable, resampling_of, resize_positions
from tests.helpers.planted import tiny_vit

RULES = pytest.mark.parametrize("rule", list(Positions))


def stored(rows, columns, width=3, seed=0):
    """Unit-variance noise as patch positions (1, rows * columns, width)."""
    noise = np.random.default_rng(seed).standard_normal((1, rows * columns, width))
    return torch.from_numpy(noise.astype(np.float32))


def resized(positions, grid, target, rule, *, offset=True, registers=0):
    how = resampling_of(rule, by_offset=offset, registers=registers)
    out = resize_positions(positions, Size(*grid), Size(*target), how)
    return out.reshape(*target, -1).numpy()


def cubic(distance):
    """The cubic convolution kernel with a = -0.75, which torch takes without antialias."""
    a, x = -0.75, abs(distance)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0


def matrix(count, target, scale):
    """Rows of weights that take ``count`` cells to ``target``, one source cell = ``scale``."""
    weights = np.zeros((target, count))
    for row in range(target):
        place = (row + 0.5) / scale - 0.5
        for cell in range(math.floor(place) - 1, math.floor(place) + 3):
            weights[row, min(max(cell, 0), count - 1)] += cubic(place - cell)
    return weights


def by_formula(positions, grid, target, offset):
    """Bicubic without antialias: DINO's (n + 0.1) / M, or n / M for an offset of 0."""
    image = positions.numpy().reshape(*grid, -1).astype(np.float64)
    rows, columns = (
        matrix(have, want, (want + offset) / have) for have, want in zip(grid, target, strict=True)
    )
    return np.einsum("yr,xc,rcd->yxd", rows, columns, image)


def by_pillow(positions, grid, target):
    """Bicubic with antialias, by another library."""
    image = positions.numpy().reshape(*grid, -1)
    planes = [
        Image.fromarray(image[..., i]).resize((target[1], target[0]), Image.Resampling.BICUBIC)
        for i in range(image.shape[-1])
    ]
    return np.stack([np.asarray(plane) for plane in planes], axis=-1)


TARGETS = [((28, 28), (60, 60)), ((28, 28), (20, 20)), ((14, 14), (23, 40)), ((37, 37), (20, 28))]


@pytest.mark.parametrize(("grid", "target"), TARGETS)
def test_the_rule_of_dino_is_its_formula(grid, target):
    ours = resized(stored(*grid), grid, target, Positions.ORIGINAL)
    assert np.abs(ours - by_formula(stored(*grid), grid, target, 0.1)).max() < 1e-4
    assert np.abs(ours - by_formula(stored(*grid), grid, target, 0.0)).max() > 1e-3


@pytest.mark.parametrize(("grid", "target"), TARGETS)
def test_the_rule_of_transformers_has_no_offset_and_no_antialias(grid, target):
    ours = resized(stored(*grid), grid, target, Positions.HF)
    assert np.abs(ours - by_formula(stored(*grid), grid, target, 0.0)).max() < 1e-4


@pytest.mark.parametrize(("grid", "target"), TARGETS)
def test_the_rule_of_timm_has_antialias_as_has_that_of_register_models(grid, target):
    ours = resized(stored(*grid), grid, target, Positions.TIMM)
    assert np.abs(ours - by_pillow(stored(*grid), grid, target)).max() < 1e-4
    registers = resized(stored(*grid), grid, target, Positions.ORIGINAL, offset=False)
    assert (registers == ours).all()


@pytest.mark.parametrize(("side", "most", "rms"), [(60, 0.45, 0.09), (20, 2.0, 0.39)])
def test_how_far_the_rules_lie_apart(side, most, rms):
    """Unit-variance noise of 28 x 28 cells: of the size that users meet as other features."""
    noise = stored(28, 28, width=64)
    one, other = (
        resized(noise, (28, 28), (side, side), rule)
        for rule in (Positions.ORIGINAL, Positions.TIMM)
    )
    assert np.sqrt(np.square(one - other).mean()) == pytest.approx(rms, rel=0.15)
    assert np.abs(one - other).max() == pytest.approx(most, rel=0.35)


@RULES
def test_at_the_stored_grid_nothing_is_touched(rule):
    noise = stored(14, 14)
    how = resampling_of(rule, by_offset=True, registers=0)
    out = resize_positions(noise, Size(14, 14), Size(14, 14), how)
    assert out is noise


@RULES
@pytest.mark.parametrize(
    ("grid", "patch", "pixels"),
    [
        *((37, 14, (side, side)) for side in (546, 602, 1092, 1204, 1610, 1722)),
        *((14, 16, (side, side)) for side in (976, 1840, 1952)),
        (28, 8, (427, 488)),
        (28, 8, (488, 427)),
        (37, 14, (546, 1204)),
        (14, 16, (1840, 976)),
    ],
)
def test_no_row_of_patches_is_lost_to_rounding(rule, grid, patch, pixels):
    target = tuple(side // patch for side in pixels)
    assert resized(stored(grid, grid, 2), (grid, grid), target, rule).shape == (*target, 2)


@RULES
@pytest.mark.parametrize(
    ("grid", "target"), [(37, (39, 39)), (14, (61, 61)), (28, (53, 61)), (28, (61, 53))]
)
def test_a_pass_sees_every_patch_and_leaves_the_model_as_it_was(rule, grid, target):
    """37 to 39 and 14 to 61 cells are pairs that a plain scale factor rounds down."""
    model = tiny_vit(depth=1, patch=2, size=2 * grid)
    before = model.module.pos_embed
    table = PositionTable(model.module, rule, by_offset=True, registers=0)
    height, width = target
    with torch.inference_mode(), table.at(Size(height, width)):
        assert tuple(model.module.patch_embed.grid_size) == target
        tokens = model.module.forward_features(torch.zeros(1, 3, 2 * height, 2 * width))
    assert tokens.shape[1] == 1 + height * width
    assert {(53, 61): 3234, (61, 53): 3234}.get(target, tokens.shape[1]) == tokens.shape[1]
    assert model.module.pos_embed is before
    assert tuple(model.module.patch_embed.grid_size) == (grid, grid)


def test_rows_and_columns_are_not_exchanged():
    """A ramp down the rows stays one at a grid that is not square."""
    ramp = torch.arange(16.0).repeat_interleave(16).reshape(1, 256, 1)
    out = resized(ramp, (16, 16), (8, 20), Positions.TIMM)[..., 0]
    assert (np.diff(out, axis=0) > 1).all()
    assert np.abs(np.diff(out, axis=1)).max() < 1e-4


def test_prefix_positions_are_kept_and_a_few_grids_are_remembered():
    model = tiny_vit(depth=1, patch=8, size=32)
    table = PositionTable(model.module, Positions.ORIGINAL, by_offset=True, registers=0)
    stored_class = model.module.pos_embed[:, :1].clone()
    seen = {}
    for side in range(5, 5 + table.KEEP + 2):
        with table.at(Size(side, 4)):
            seen[side] = model.module.pos_embed
            assert torch.equal(seen[side][:, :1], stored_class)
            assert seen[side].shape[1] == 1 + 4 * side
    with table.at(Size(side, 4)):
        assert model.module.pos_embed is seen[side]
    with table.at(Size(5, 4)):
        assert model.module.pos_embed is not seen[5]
        assert torch.equal(model.module.pos_embed, seen[5])
