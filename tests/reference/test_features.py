"""Output tokens against ``last_hidden_state`` and ``hidden_states`` of the transformers library."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from tests.helpers.checkpoints import randomise, undrawn
from tests.helpers.command_line import arrays, attnviz
from tests.helpers.versions import NEW_TRANSFORMERS

transformers.utils.logging.disable_progress_bar()

TOLERANCE = 2e-5
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
SMALL = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 3}
KINDS = {
    "vit": (
        transformers.ViTModel,
        transformers.ViTConfig(**SMALL, intermediate_size=192, image_size=48, patch_size=8),
        1,
    ),
    "dinov2": (
        transformers.Dinov2Model,
        transformers.Dinov2Config(**SMALL, image_size=56, patch_size=14),
        1,
    ),
    "registers": (
        transformers.Dinov2WithRegistersModel,
        transformers.Dinov2WithRegistersConfig(**SMALL, image_size=56, patch_size=14),
        5,
    ),
}


@NEW_TRANSFORMERS
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_transformers(kind, tmp_path):
    make, config, prefix = KINDS[kind]
    model = randomise(undrawn(make, config))
    model.save_pretrained(tmp_path / kind)
    side = config.image_size
    noise = np.random.default_rng(7).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    values = ((noise / 255 - MEAN) / STD).astype(np.float32).transpose(2, 0, 1)
    with torch.inference_mode():
        theirs = model(torch.from_numpy(values.copy())[None], output_hidden_states=True)
    call = (
        "features", tmp_path / "noise.png", "--checkpoint", tmp_path / kind, "--quiet", "--dpi",
        "30", "--mean", ",".join(map(str, MEAN)), "--std", ",".join(map(str, STD)), "--save-data",
    )  # fmt: skip
    assert attnviz(*call, "--out", tmp_path / "a") == 0
    found = arrays(tmp_path / "a" / "noise.features.npz")
    expected = theirs.last_hidden_state[0].numpy()
    np.testing.assert_allclose(found["tokens"], expected, atol=TOLERANCE)
    # hidden_states[k] is what block k gets: the last entry is what the last block gives.
    before = theirs.hidden_states[-1][0].numpy()
    norms = np.linalg.norm(before, axis=1)
    np.testing.assert_allclose(found["prefix_norm"], norms[:prefix], rtol=1e-5)
    np.testing.assert_allclose(found["norm"].ravel(), norms[prefix:], rtol=1e-5)
    assert attnviz(*call, "--layer", "1", "--out", tmp_path / "b") == 0
    found = arrays(tmp_path / "b" / "noise.features.npz")
    np.testing.assert_allclose(found["tokens"], theirs.hidden_states[2][0].numpy(), atol=TOLERANCE)
