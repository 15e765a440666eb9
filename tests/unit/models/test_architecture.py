"""Which timm module is built: from a user's own sizes, and from the shapes of a file alone."""

from __future__ import annotations

import dataclasses

import pytest

from attnviz.domain import Size
from attnviz.errors import CheckpointError, UsageError
from attnviz.models.architecture import from_inferred, native_size, stored_size, timm_arguments
from attnviz.models.build import build
from attnviz.models.weights.inferred import InferredConfig, Source

PLAIN = InferredConfig(
    patch=8, in_chans=3, width=64, depth=3, heads=2, registers=0, has_cls=True, distilled=False,
    mlp_hidden=160, gated_mlp=False, layer_scale=False, qkv_bias=True, qk_norm=False, rotary=False,
    grid=Size(4, 6), positions_prefix=1,
)  # fmt: skip


def inferred(**changes):
    return dataclasses.replace(PLAIN, **changes)


def built(given, args=None, **more):
    return build(from_inferred(given, args or {}, **more), random_weights=True)


def test_own_sizes_in_the_words_of_timm():
    args = {"width": 64, "depth": 2, "heads": 4, "patch": 8, "registers": 0, "size": 32}
    common = {"embed_dim": 64, "depth": 2, "num_heads": 4, "patch_size": 8, "img_size": (32, 32)}
    assert timm_arguments(args) == common | {"reg_tokens": 0}
    assert timm_arguments(args, eva=True) == common | {"num_reg_tokens": 0}


@pytest.mark.parametrize(("name", "value"), [("colour", 1), ("heads", 0), ("registers", -1)])
def test_unknown_names_and_sizes_below_one_are_wrong_use(name, value):
    with pytest.raises(UsageError, match=f"--model-arg {name}"):
        timm_arguments({name: value})


@pytest.mark.parametrize(
    ("changes", "prefix", "names"),
    [
        ({}, 1, ()),
        ({"layer_scale": True}, 1, ("blocks.0.ls1.gamma",)),
        ({"layer_scale": True, "registers": 4, "positions_prefix": 0}, 5, ("reg_token",)),
        ({"qk_norm": True}, 1, ("blocks.0.attn.q_norm.weight",)),
        ({"has_cls": False, "positions_prefix": 0}, 0, ()),
        ({"distilled": True, "positions_prefix": 2}, 2, ("dist_token",)),
        ({"rotary": True, "grid": None, "layer_scale": True, "registers": 3}, 4,
         ("blocks.0.gamma_1",)),
        ({"rotary": True, "grid": None, "layer_scale": True, "gated_mlp": True}, 1,
         ("blocks.0.mlp.fc1_g.weight",)),
    ],
)  # fmt: skip
def test_the_module_has_the_parts_that_the_shapes_show(changes, prefix, names):
    module = built(inferred(**changes))
    own = module.state_dict()
    assert (module.embed_dim, len(module.blocks), module.num_prefix_tokens) == (64, 3, prefix)
    assert module.patch_embed.patch_size == (8, 8)
    assert module.blocks[0].attn.num_heads == 2
    assert own["blocks.2.mlp.fc2.weight"].shape == (64, 160)
    assert all(name in own for name in names)
    if not changes.get("rotary"):
        stored = inferred(**changes).positions_prefix + 4 * 6
        assert own["pos_embed"].shape == (1, stored, 64)
        assert module.patch_embed.grid_size == (4, 6)


def test_packed_gates_double_the_first_layer():
    module = built(inferred(gated_mlp=True, layer_scale=True))
    assert module.blocks[0].mlp.fc1.weight.shape == (320, 64)
    assert module.blocks[0].mlp.fc2.weight.shape == (64, 160)


def test_heads_are_given_or_refused():
    assert built(inferred(heads=None), {"heads": 4}).blocks[0].attn.num_heads == 4
    with pytest.raises(CheckpointError, match="number of heads is not stored") as caught:
        from_inferred(inferred(heads=None), {})
    assert "--model-arg heads=N" in caught.value.hint
    with pytest.raises(CheckpointError, match="5 heads do not divide the width 64"):
        from_inferred(inferred(), {"heads": 5})


def test_pixels_of_a_dino_and_of_a_supervised_model():
    assert built(inferred(), source=Source.DINO).pretrained_cfg["mean"] == (0.485, 0.456, 0.406)
    assert built(inferred()).pretrained_cfg["mean"] == (0.5, 0.5, 0.5)


def test_sizes_that_a_file_speaks_of():
    assert stored_size(inferred()) == {"img_size": (32, 48)}
    assert stored_size(inferred(grid=None)) == {}
    assert native_size(inferred()) == Size(32, 48)
    assert native_size(inferred(image_size=Size(64, 64))) == Size(64, 64)
    assert native_size(inferred(grid=None)) is None
