"""Snapshots of live models of further libraries give the maps of their own layers."""

from __future__ import annotations

import pytest
import torch
import torchvision
import transformers

from attnviz.attention.capture import capture
from attnviz.errors import UnsupportedModelError, UsageError
from attnviz.models.training import snapshot_backbone, undisturbed
from tests.helpers.checkpoints import pixels, randomise, undrawn
from tests.helpers.versions import NEW_TRANSFORMERS

TOLERANCE = 1e-5


def matrices(model, batch):
    found = []

    def take(call):
        found.append(call.rows(torch.arange(call.query.shape[-2]))[0])

    capture(model, batch, model.info.depth - 1, take)
    return torch.stack(found)


TOWER = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
         "num_attention_heads": 4, "image_size": 64, "patch_size": 16}  # fmt: skip
TEXT = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2}  # fmt: skip
BOTH = {"vision_config": TOWER, "text_config": TEXT, "attn_implementation": "eager"}


@NEW_TRANSFORMERS
@pytest.mark.parametrize(
    ("make", "config", "prefix"),
    [
        (transformers.CLIPModel, transformers.CLIPConfig(**BOTH), 1),
        (transformers.SiglipModel, transformers.SiglipConfig(**BOTH), 0),
    ],
)
def test_the_vision_tower_of_a_model_with_text_is_found(make, config, prefix):
    live = randomise(undrawn(make, config)).train()
    with undisturbed(live):
        snapshot = snapshot_backbone(live)
        ours = matrices(snapshot, pixels(64, 96))
    assert (snapshot.info.prefix, snapshot.info.name) == (prefix, type(live.vision_model).__name__)
    assert live.training
    tower = live.vision_model.eval()
    with torch.inference_mode():
        out = tower(pixels(64, 96), output_attentions=True, interpolate_pos_encoding=True)
    theirs = torch.stack([each[0] for each in out.attentions])
    assert float((ours - theirs).abs().max()) < TOLERANCE


def torchvisions(**more):
    return torchvision.models.VisionTransformer(
        image_size=64, patch_size=16, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, **more
    )


def test_a_vit_of_torchvision():
    """Its heads are read from the live layers, whatever its width."""
    live = torchvisions()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in live.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.2 * noise)
    with undisturbed(live):
        snapshot = snapshot_backbone(live)
        ours = matrices(snapshot, pixels(64, 64))
    assert (snapshot.info.heads, snapshot.info.name) == (4, "VisionTransformer")
    found = []
    for layer in live.eval().encoder.layers:
        attend = layer.self_attention
        attend.register_forward_pre_hook(
            lambda _module, given, more: (
                given, more | {"need_weights": True, "average_attn_weights": False}
            ),
            with_kwargs=True,
        )  # fmt: skip
        attend.register_forward_hook(lambda _module, _given, out: found.append(out[1][0]))
    with torch.inference_mode():
        live(pixels(64, 64))
    assert float((ours - torch.stack(found)).abs().max()) < TOLERANCE
    assert float(torch.stack(found).std()) > 0.01


def test_another_activation_of_torchvision_is_refused():
    live = torchvisions()
    live.encoder.layers[1].mlp[1] = torch.nn.ReLU()
    with undisturbed(live), pytest.raises(UnsupportedModelError, match="has ReLU between"):
        snapshot_backbone(live)


def test_no_message_says_of_a_vit_that_it_is_none():
    with pytest.raises(UsageError, match="Linear has no known layout of a Vision Transformer"):
        snapshot_backbone(torch.nn.Linear(2, 2))
