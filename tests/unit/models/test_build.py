"""Building a module whose weights come from a file: nothing is drawn, and nothing is touched."""

from __future__ import annotations

import pytest
import torch

from attnviz.models.architecture import Architecture
from attnviz.models.build import build

NAMES = (
    "vit_small_patch8_224.dino",
    "vit_small_patch14_reg4_dinov2.lvd142m",
    "vit_small_patch16_dinov3.lvd1689m",
    "deit_tiny_patch16_224.fb_in1k",
)


@pytest.mark.parametrize("name", NAMES)
def test_no_random_numbers_are_drawn_for_weights_that_a_file_replaces(name):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    build(Architecture(name, {"depth": 1}), random_weights=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_random_weights_are_timms_own_and_the_same_each_time():
    import timm

    architecture = Architecture(NAMES[0], {"depth": 1})
    module = build(architecture, random_weights=True)
    torch.manual_seed(0)
    own = timm.create_model(NAMES[0], depth=1, num_classes=0, dynamic_img_size=True)
    for name, tensor in own.state_dict().items():
        assert torch.equal(module.state_dict()[name], tensor), name
    assert float(module.blocks[0].attn.qkv.weight.std()) > 0
