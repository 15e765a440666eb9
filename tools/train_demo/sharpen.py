"""Set how sharply each head of the last block looks, after training.

The logit ceiling of the training keeps attention soft, so that heads take in whole objects; read
as it is, a good part of its mass lies on the background. One factor a head, multiplied into the
query weights of the last block, is an inverse temperature of that head's softmax. It is chosen on
scenes of the training objects with their masks: four numbers, the only ones that see a mask.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from evaluate import judge
from model import HEADS, WIDTH

if TYPE_CHECKING:
    from timm.models.vision_transformer import VisionTransformer

FACTORS = np.arange(0.5, 3.01, 0.1)


@torch.no_grad()
def sharpened(model: VisionTransformer, factors: np.ndarray) -> VisionTransformer:
    """A copy whose last block's logits are multiplied by ``factors`` (H,), one a head."""
    model = copy.deepcopy(model)
    qkv = model.blocks[-1].attn.qkv
    rows = torch.as_tensor(factors, dtype=torch.float32).repeat_interleave(WIDTH // HEADS)
    qkv.weight[:WIDTH] *= rows[:, None]
    qkv.bias[:WIDTH] *= rows
    return model


def choose_factors(model: VisionTransformer, images: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """The factor of each head (H,) whose mask overlaps best with the objects of some scenes.

    images (B, h, w, 3) uint8, masks (B, h, w) bool.
    """
    scores = [judge(sharpened(model, np.full(HEADS, f)), images, masks).heads for f in FACTORS]
    return FACTORS[np.argmax(scores, axis=0)]
