"""Every family of plain ViTs through the loader, against timm's own unfused attention.

Weights are random, fixed and peaked, saved as timm saves them, and loaded back as a user would.
Models whose attention is not one softmax per head are refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

import attnviz as package
from attnviz.attention.verify import verify
from attnviz.errors import UnsupportedModelError
from tests.helpers import kinds
from tests.helpers.command_line import arrays, attnviz
from tests.reference.unfused import peaked
from tests.reference.unfused import unfused as own_matrices

TOLERANCE = 3e-6


@dataclass(frozen=True)
class Family:
    """A timm model, and what must be read from it."""

    timm_name: str
    patch: int
    heads: int
    prefix: int
    registers: int
    has_cls: bool
    suffix: str = ".safetensors"
    depth: int | None = None


FAMILIES = {
    "distilled DeiT": Family("deit_tiny_distilled_patch16_224", 16, 3, 2, 0, True, ".pth"),
    "augreg": Family("vit_tiny_patch16_224.augreg_in21k", 16, 3, 1, 0, True),
    "CLIP": Family("vit_xsmall_patch16_clip_224", 16, 4, 1, 0, True),
    "SigLIP": Family("vit_base_patch16_siglip_224", 16, 12, 0, 0, False, depth=2),
    "no CLS token, register": Family("test_vit2", 16, 2, 1, 1, False, ".pth"),
    "no CLS token, attention pool": Family("test_vit3", 16, 3, 1, 1, False),
    "no CLS token, RMS norms": Family("test_vit4", 16, 3, 1, 1, False),
    "q/k norms, parallel MLP": Family("vit_base_patch16_xp_224", 16, 12, 1, 0, True, depth=2),
    "scaled residual": Family("vit_base_patch16_rpn_224", 16, 12, 0, 0, False, depth=2),
    "EVA-02": Family("eva02_tiny_patch14_224", 14, 3, 1, 0, True),
    "learned rotation": Family(
        "vit_small_patch16_rope_mixed_224", 16, 6, 1, 0, True, ".pth", depth=3
    ),
    "DINOv3": Family("vit_small_patch16_dinov3", 16, 6, 5, 4, True),
    "BEiT": Family("beit_base_patch16_224", 16, 12, 1, 0, True, ".pth", depth=2),
    "BEiT v2": Family("beitv2_base_patch16_224.in1k_ft_in22k_in1k", 16, 12, 1, 0, True, depth=2),
    "relative positions": Family("vit_relpos_small_patch16_224", 16, 6, 0, 0, False, depth=2),
    "shared relative positions and CLS": Family(
        "vit_srelpos_small_patch16_224", 16, 6, 0, 0, False, depth=2
    ),
    "relative positions and CLS": Family(
        "vit_relpos_base_patch16_clsgap_224", 16, 12, 1, 0, True, depth=2
    ),
    "DeiT III": Family("deit3_small_patch16_224", 16, 6, 1, 0, True, depth=3),
}
ALL = pytest.mark.parametrize("name", FAMILIES)


@pytest.fixture(scope="module")
def file_of(tmp_path_factory):
    """The weights file of a family, saved as timm saves its state."""
    folder = tmp_path_factory.mktemp("families")
    made = {}

    def get(name):
        family = FAMILIES[name]
        if name not in made:
            depth = {} if family.depth is None else {"depth": family.depth}
            state = peaked(timm.create_model(family.timm_name, **depth)).state_dict()
            path = folder / f"{family.timm_name}{family.suffix}"
            if family.suffix == ".pth":
                torch.save(state, path)
            else:
                save_file(state, path)
            made[name] = path
        return made[name]

    return get


@pytest.fixture(scope="module")
def loaded(file_of):
    """The model of a family, loaded from its file."""
    made = {}

    def get(name):
        family = FAMILIES[name]
        if name not in made:
            depth = {} if family.depth is None else {"depth": family.depth}
            made[name] = package.load_model(
                family.timm_name, checkpoint=file_of(name), device="cpu", **depth
            )
        return made[name]

    return get


def picture(patch):
    """Noise of 4 x 6 patches."""
    return np.random.default_rng(5).integers(0, 256, (4 * patch, 6 * patch, 3), dtype=np.uint8)


@pytest.fixture
def picture_file(tmp_path):
    path = tmp_path / "noise.png"
    Image.fromarray(picture(16)).save(path)
    return path


def unfused(model, batch):
    """Every matrix (L, H, N, N), out of the dropout behind timm's own softmax."""
    return own_matrices(model.module, lambda: model.run(batch))


@ALL
def test_attention_is_what_the_model_computes(name, loaded):
    model, family = loaded(name), FAMILIES[name]
    info = model.info
    assert (info.patch, info.heads, info.prefix, info.registers, info.has_cls) == (
        family.patch, family.heads, family.prefix, family.registers, family.has_cls
    )  # fmt: skip
    image = package.prepare(picture(info.patch), model, size="original")
    dense = unfused(model, model.batch([image]))
    assert dense.shape[1:] == (family.heads, *(2 * (family.prefix + 24,)))
    assert dense.std() > 0.01, "nearly uniform attention would show nothing"
    query = "cls" if family.has_cls else "mean"
    maps = package.layers(model, image, query=query)
    ours = np.concatenate([maps.prefix, maps.attention.reshape(*maps.prefix.shape[:2], 24)], -1)
    theirs = dense[:, :, 0] if family.has_cls else dense[:, :, family.prefix :].mean(axis=2)
    assert np.abs(ours - theirs).max() < TOLERANCE

    cells = package.patch(model, image, cells=((0, 0), (3, 4)))
    rows = dense[-1][:, [family.prefix, family.prefix + 3 * 6 + 4], family.prefix :]
    found = cells.attention.reshape(2, family.heads, 24).transpose(1, 0, 2)
    assert np.abs(found - rows).max() < TOLERANCE


@ALL
def test_attention_times_v_is_the_models_own_output(name, loaded):
    model = loaded(name)
    image = package.prepare(picture(model.info.patch), model, size="original")
    deviations = verify(model, model.batch([image]))
    assert len(deviations) == model.info.depth
    assert max(deviations) < 1e-5


def test_a_rotation_left_out_would_be_seen(loaded):
    """The check of the check: other attention in the model than in the comparison."""
    model = loaded("EVA-02")
    image = package.prepare(picture(14), model, size="original")
    dense = unfused(model, model.batch([image]))
    rope = model.module.rope
    model.module.rope = None
    try:
        without = unfused(model, model.batch([image]))
    finally:
        model.module.rope = rope
    assert np.abs(dense - without).max() > 1e-2


def test_a_headless_model_of_timm_keeps_timms_position_rule(loaded):
    """Its tensors have the very names of a DINO file; what was asked for by name decides."""
    assert loaded("augreg").info.positions == "timm"
    assert loaded("augreg").info.mean == (0.5, 0.5, 0.5)
    assert loaded("distilled DeiT").info.mean == (0.485, 0.456, 0.406)


@pytest.mark.parametrize("name", ["no CLS token, register", "SigLIP"])
@pytest.mark.parametrize("command", kinds.OF_CLS)
def test_without_a_class_token_its_commands_refuse(
    name, command, file_of, picture_file, tmp_path, capsys
):
    code = attnviz(command, picture_file, *asked(name, file_of), "--out", tmp_path / "out")
    assert code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{FAMILIES[name].timm_name} has no CLS token" in said.err
    assert "attnviz patch" in said.err
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def asked(name, file_of):
    family = FAMILIES[name]
    depth = () if family.depth is None else ("--model-arg", f"depth={family.depth}")
    return ("--model", family.timm_name, "--checkpoint", file_of(name), *depth)


@pytest.mark.parametrize("name", ["no CLS token, register", "SigLIP"])
def test_without_a_class_token_patches_and_the_mean_work(
    name, file_of, loaded, picture_file, tmp_path
):
    """Query row and columns are counted from the registers, where there are any."""
    model, family = loaded(name), FAMILIES[name]
    image = package.prepare(picture(16), model, size="original")
    dense = unfused(model, model.batch([image]))[-1]
    common = (*asked(name, file_of), "--size", "original", "--save-data", "--dpi", 40, "--quiet",
              "--out", tmp_path)  # fmt: skip
    assert attnviz("patch", picture_file, "--at", "0,0", *common) == 0
    attention = arrays(tmp_path / "noise.patch.npz")["attention"]
    assert attention.shape == (1, family.heads, 4, 6)
    row = dense[:, family.prefix, family.prefix :].reshape(family.heads, 4, 6)
    assert np.abs(attention[0] - row).max() < TOLERANCE

    assert attnviz("heads", picture_file, "--query", "mean", *common) == 0
    attention = arrays(tmp_path / "noise.heads.npz")["attention"]
    mean = dense[:, family.prefix :, family.prefix :].mean(axis=1).reshape(family.heads, 4, 6)
    assert np.abs(attention - mean).max() < TOLERANCE
    assert attnviz("rollout", picture_file, "--query", "mean", *common) == 0

    assert attnviz("matrix", picture_file, *common) == 0
    found = arrays(tmp_path / "noise.matrix.npz")
    assert np.abs(found["attention"] - dense).max() < TOLERANCE
    assert "to_cls" not in found
    assert attnviz("qkv", picture_file, "--part", "v", *common) == 0
    assert arrays(tmp_path / "noise.qkv.npz")["value_pca"].shape == (family.heads, 4, 6, 3)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("resnet50", "is not supported (timm's resnet)"),
        ("swin_tiny_patch4_window7_224", "is not supported (timm's swin_transformer)"),
        ("samvit_base_patch16_224", "is not supported (timm's vision_transformer_sam)"),
        ("vit_small_patch16_18x2_224", "does not have a single softmax attention in a block"),
        ("vit_dwee_patch16_reg1_gap_256", "does not have a single softmax attention in a block"),
        ("vit_dpwee_patch16_reg1_gap_256", "does not have a single softmax attention in a block"),
    ],
)
def test_what_is_not_one_softmax_per_head_is_refused_by_name(
    name, reason, picture_file, tmp_path, capsys
):
    """Before any picture is looked at: this one cannot even be read."""
    broken = tmp_path / "broken.png"
    broken.write_bytes(picture_file.read_bytes()[:100])
    code = attnviz("patch", broken, "--model", name, "--random-weights", "--out", tmp_path / "out")
    assert code == 2
    said = capsys.readouterr().err
    assert f"{name} {reason}" in said
    assert "broken.png" not in said


def test_the_refusal_of_a_family_lists_those_that_work(picture_file, capsys):
    attnviz("heads", picture_file, "--model", "swin_tiny_patch4_window7_224")
    said = " ".join(capsys.readouterr().err.split())
    assert "DINO, DINOv2, DINOv3" in said
    assert "BEiT, CLIP, SigLIP and EVA" in said


def test_q_and_k_norms_of_a_model_that_no_name_stands_for(tmp_path):
    """The file says that it has them; without them the attention is another."""
    sizes = {"img_size": 64, "patch_size": 16, "embed_dim": 64, "depth": 3, "num_heads": 2}
    made = peaked(timm.models.VisionTransformer(**sizes, num_classes=0, qk_norm=True))
    for name, parameter in made.named_parameters():
        if "q_norm.weight" in name:
            torch.nn.init.constant_(parameter, 1.5)
    torch.save(made.state_dict(), tmp_path / "own.pth")
    model = package.load_model(checkpoint=tmp_path / "own.pth", heads=2)
    image = package.prepare(picture(16), model, size="original")
    batch = model.batch([image])
    dense = unfused(model, batch)
    maps = package.layers(model, image)
    theirs = dense[:, :, 0, 1:].reshape(3, 2, 4, 6)
    assert np.abs(maps.attention - theirs).max() < TOLERANCE
    for block in model.blocks:
        block.attn.q_norm = block.attn.k_norm = torch.nn.Identity()
    assert np.abs(unfused(model, batch) - dense).max() > 1e-2


def test_a_parallel_block_with_one_attention_is_shown_exactly():
    """MLP and attention side by side: the block itself holds the one attention."""
    model = package.load_model("vit_pwee_patch16_reg1_gap_256", random_weights=True, depth=2)
    peaked(model.module)
    image = package.prepare(picture(16), model, size="original")
    dense = unfused(model, model.batch([image]))
    maps = package.layers(model, image, query="mean")
    mean = dense[:, :, 1:, 1:].mean(axis=2).reshape(2, 4, 4, 6)
    assert np.abs(maps.attention - mean).max() < TOLERANCE


def test_a_second_softmax_in_a_block_is_noticed_while_running(loaded, monkeypatch):
    """Were such a block let in by the loader, the pass itself would refuse it."""
    model = loaded("augreg")
    image = package.prepare(picture(16), model, size="original")
    attn = type(model.blocks[0].attn)
    once = attn.forward

    def twice(self, *args, **kwargs):
        return once(self, *args, **kwargs) - once(self, *args, **kwargs)

    monkeypatch.setattr(attn, "forward", twice)
    with pytest.raises(UnsupportedModelError, match="block 0 calls scaled dot product attention 2"):
        package.layers(model, image)
