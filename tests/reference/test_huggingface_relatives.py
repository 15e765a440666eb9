"""Small folders of further models of transformers, against its own eager attention.

Vision towers of CLIP and SigLIP, with and without their text tower; BEiT with every kind of
positions; MAE, MSN and I-JEPA. Every layer and head, all rows, at the stored grid and at others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers

import attnviz as package
from attnviz.attention.capture import capture
from attnviz.attention.pooling import pooling_weights
from attnviz.errors import CheckpointError
from attnviz.models.weights import huggingface
from tests.helpers.checkpoints import edit_config, randomise, undrawn
from tests.helpers.versions import OLD_TRANSFORMERS

transformers.utils.logging.disable_progress_bar()

TOLERANCE = 1e-5
VISIBLE = 1e-3
SIZES = [(64, 64), (48, 96), (96, 48), (80, 80)]
TOWER = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
         "num_attention_heads": 4, "image_size": 64, "patch_size": 16}  # fmt: skip
SMALL = TOWER | {"attn_implementation": "eager"}
TEXT = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2}  # fmt: skip
BOTH = {"vision_config": TOWER, "text_config": TEXT, "attn_implementation": "eager"}


@dataclass(frozen=True)
class Kind:
    """A model of transformers; ``interpolated``: it takes other sizes only when asked to."""

    model: Any
    config: Any
    prefix: int
    interpolated: bool = True
    has_cls: bool = True
    more: dict[str, Any] = field(default_factory=dict)


def beit(**more):
    return Kind(transformers.BeitModel, transformers.BeitConfig(**SMALL, **more), 1, False)


KINDS = {
    "CLIP": Kind(transformers.CLIPModel, transformers.CLIPConfig(**BOTH), 1),
    "CLIP tower": Kind(transformers.CLIPVisionModel, transformers.CLIPVisionConfig(**SMALL), 1),
    "CLIP with a projection": Kind(
        transformers.CLIPVisionModelWithProjection,
        transformers.CLIPVisionConfig(**SMALL, hidden_act="gelu"),
        1,
    ),
    "SigLIP": Kind(transformers.SiglipModel, transformers.SiglipConfig(**BOTH), 0, has_cls=False),
    "SigLIP tower": Kind(
        transformers.SiglipVisionModel, transformers.SiglipVisionConfig(**SMALL), 0, has_cls=False
    ),
    "SigLIP without a head": Kind(
        transformers.SiglipVisionModel,
        transformers.SiglipVisionConfig(**SMALL, vision_use_head=False),
        0,
        has_cls=False,
    ),
    "BEiT": beit(use_relative_position_bias=True, use_mean_pooling=True),
    "BEiT, shared and absolute": beit(
        use_shared_relative_position_bias=True,
        use_absolute_position_embeddings=True,
        use_mean_pooling=False,
    ),
    "BEiT, both biases": beit(
        use_relative_position_bias=True, use_shared_relative_position_bias=True
    ),
    "BEiT without positions": beit(layer_scale_init_value=0.0),
    "Data2Vec": Kind(
        transformers.Data2VecVisionModel,
        transformers.Data2VecVisionConfig(**SMALL, use_relative_position_bias=True),
        1,
        False,
    ),
    "MAE": Kind(transformers.ViTMAEModel, transformers.ViTMAEConfig(**SMALL, mask_ratio=0.0), 1),
    "MSN": Kind(transformers.ViTMSNModel, transformers.ViTMSNConfig(**SMALL), 1),
    "I-JEPA": Kind(
        transformers.IJepaModel, transformers.IJepaConfig(**SMALL), 0, has_cls=False
    ),
    "ViT with another activation": Kind(
        transformers.ViTModel, transformers.ViTConfig(**SMALL, hidden_act="gelu_new"), 1
    ),
}  # fmt: skip
ALL = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The tower of a kind of model, the folder the model is saved in, and ours from it."""
    known = {}

    def get(name):
        if name not in known:
            kind = KINDS[name]
            model = randomise(undrawn(kind.model, kind.config), seed=len(name))
            folder = tmp_path_factory.mktemp("relatives") / name.replace(" ", "-")
            model.save_pretrained(folder)
            tower = model.vision_model if hasattr(model, "vision_model") else model
            known[name] = tower, folder, package.load_model(checkpoint=folder, device="cpu")
        return known[name]

    return get


def theirs(tower, kind, pixels):
    """Every matrix (L, H, N, N) and the pooled output."""
    options = {"interpolate_pos_encoding": True} if kind.interpolated else {}
    if kind.model is transformers.ViTMAEModel:
        options["noise"] = torch.arange(pixels.shape[2] * pixels.shape[3] // 256)[None].float()
    with torch.inference_mode():
        out = tower(pixels, output_attentions=True, **options)
    if OLD_TRANSFORMERS and out.attentions[0] is None:
        pytest.skip("this version of transformers keeps no attentions of the tower")
    return torch.stack([each[0] for each in out.attentions]), getattr(out, "pooler_output", None)


def matrices(model, pixels):
    """Every matrix of ours, (L, H, N, N)."""
    found = []

    def take(call):
        found.append(call.rows(torch.arange(call.query.shape[-2]))[0])

    capture(model, pixels, model.info.depth - 1, take)
    return torch.stack(found)


def image(size, seed=0):
    return torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(seed))


def difference(left, right):
    assert left.shape == right.shape
    return float((left - right).abs().max())


@ALL
def test_every_matrix_is_that_of_transformers(name, made):
    """``call.rows`` also checks that attention times V is the output of the model's own kernel."""
    kind = KINDS[name]
    tower, _, model = made(name)
    assert (model.info.prefix, model.info.has_cls) == (kind.prefix, kind.has_cls)
    assert (model.info.native_size, model.info.heads) == ((64, 64), 4)
    for size in SIZES:
        expected, _ = theirs(tower, kind, image(size))
        assert difference(matrices(model, image(size)), expected) < TOLERANCE, size
        assert float(expected.std()) > 0.05, "nearly uniform attention would show nothing"


@ALL
def test_the_folder_names_the_model(name, made):
    _, folder, model = made(name)
    assert model.info.name == model.info.title == folder.name
    assert model.info.positions == "hf"
    assert model.info.statistics_assumed, "there is no preprocessor_config.json"


@pytest.mark.parametrize("name", ["SigLIP", "SigLIP tower"])
def test_the_latent_query_of_siglip_is_kept(name, made):
    """Its pooling gives transformers' pooled output, so every weight of it is in its place."""
    tower, _, model = made(name)
    pool = model.attention_pool
    assert pool is not None
    assert torch.equal(pool.latent, tower.head.probe)
    for size in SIZES[:2]:
        _, expected = theirs(tower, KINDS[name], image(size))
        with torch.inference_mode():
            assert difference(pool(model.run(image(size))), expected) < TOLERANCE


@pytest.mark.parametrize("name", ["SigLIP", "SigLIP tower"])
def test_how_the_latent_query_of_siglip_reads(name, made):
    """torch's own MultiheadAttention, which transformers pools by, returns the same weights."""
    tower, _, model = made(name)
    for size in SIZES[:2]:
        with torch.inference_mode():
            tokens = tower(image(size), interpolate_pos_encoding=True).last_hidden_state
            _, expected = tower.head.attention(
                tower.head.probe, tokens, tokens, average_attn_weights=False
            )  # B, H, 1, N
        assert difference(pooling_weights(model, image(size)), expected.transpose(1, 2)) < TOLERANCE


def test_a_model_that_is_pooled_otherwise_has_no_latent_query(made):
    for name in ("CLIP", "SigLIP without a head", "BEiT"):
        assert made(name)[2].attention_pool is None


@pytest.mark.parametrize(
    ("name", "swap"),
    [("CLIP tower", "self_attn.q_proj"), ("SigLIP tower", "self_attn.q_proj"),
     ("I-JEPA", "attention.attention.query"), ("BEiT", "attention.attention.query")],
)  # fmt: skip
def test_keys_in_place_of_queries_are_noticed(name, swap, made, monkeypatch):
    tower, folder, _ = made(name)
    inside = dict(huggingface._INSIDE)
    other = swap.replace("q_proj", "k_proj").replace("query", "key")
    inside[swap], inside[other] = inside[other], inside[swap]
    monkeypatch.setattr(huggingface, "_INSIDE", inside)
    model = package.load_model(checkpoint=folder, device="cpu")
    expected, _ = theirs(tower, KINDS[name], image((64, 64)))
    assert difference(matrices(model, image((64, 64))), expected) > VISIBLE


@pytest.mark.parametrize(
    ("name", "change"),
    [("CLIP tower", {"hidden_act": "gelu"}), ("SigLIP tower", {"hidden_act": "gelu"}),
     ("ViT with another activation", {"hidden_act": "relu"})],
)  # fmt: skip
def test_the_activation_is_that_of_the_config(name, change, made, tmp_path):
    tower, folder, model = made(name)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    edit_config(copy, **change)
    other = package.load_model(checkpoint=copy, device="cpu")
    assert (
        difference(matrices(other, image((64, 64))), matrices(model, image((64, 64))))
        > VISIBLE / 10
    )
    if OLD_TRANSFORMERS and not hasattr(tower, "from_pretrained"):
        pytest.skip("this version of transformers loads no tower by itself")
    again = type(tower).from_pretrained(copy, attn_implementation="eager").eval()
    expected, _ = theirs(again, KINDS[name], image((64, 64)))
    assert difference(matrices(other, image((64, 64))), expected) < TOLERANCE


def test_biases_of_beit_follow_the_rule_that_is_asked_for(made):
    """transformers resizes the table bilinearly, timm as BEiT's own code does."""
    _, folder, model = made("BEiT")
    timms = package.load_model(checkpoint=folder, device="cpu", positions="timm")
    same, other = image((64, 64)), image((48, 96))
    assert difference(matrices(model, same), matrices(timms, same)) == 0
    assert difference(matrices(model, other), matrices(timms, other)) > VISIBLE


def test_a_tower_without_details_takes_the_defaults_of_transformers(made, tmp_path):
    """Published SigLIP configs say no more of their tower than its type."""
    _, folder, _ = made("SigLIP")
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    edit_config(tmp_path, vision_config={"model_type": "siglip_vision_model", "image_size": 64})
    with pytest.raises(CheckpointError, match=r"num_attention_heads of config\.json is 12"):
        package.load_model(checkpoint=tmp_path, device="cpu")
    edit_config(tmp_path, vision_config={"num_attention_heads": 4})
    with pytest.raises(CheckpointError, match=r"do not fit the 14x14 grid of config\.json"):
        package.load_model(checkpoint=tmp_path, device="cpu")


def test_a_classifier_of_clip_is_not_taken_for_one_of_the_class_token(tmp_path):
    """It reads the mean patch before the last norm."""
    config = transformers.CLIPConfig(**BOTH, num_labels=5)
    randomise(undrawn(transformers.CLIPForImageClassification, config)).save_pretrained(tmp_path)
    assert package.load_model(checkpoint=tmp_path, device="cpu").head is None


@pytest.mark.parametrize("pooled", [True, False])
def test_the_classifier_of_beit_is_kept(pooled, tmp_path):
    config = transformers.BeitConfig(
        **SMALL, use_relative_position_bias=True, use_mean_pooling=pooled, num_labels=5
    )
    wrapper = randomise(undrawn(transformers.BeitForImageClassification, config))
    wrapper.save_pretrained(tmp_path)
    model = package.load_model(checkpoint=tmp_path, device="cpu")
    assert model.head is not None
    with torch.inference_mode():
        expected = wrapper(image((64, 64))).logits
        assert difference(model.head.logits(model.run(image((64, 64)))), expected) < TOLERANCE
