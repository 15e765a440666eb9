"""Set the inverse temperature of each head of the last block, after training.

The logit ceiling of the training keeps attention soft, so that heads cover whole objects; as
trained, much of its mass lies on the background. One factor per head, multiplied into the query
weights of the last block, is an inverse temperature of the softmax of that head. It is chosen on
scenes of training objects with their masks: four numbers, and nothing else uses a mask.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from evaluate import logits_of, score_maps
from model import HEADS, WIDTH, class_attention

if TYPE_CHECKING:
    from evaluate import Scores
    from timm.models.vision_transformer import VisionTransformer

FACTORS = np.arange(0.5, 3.61, 0.1)


@torch.no_grad()
def sharpened(model: VisionTransformer, factors: np.ndarray) -> VisionTransformer:
    """A copy with the logits of the last block multiplied by ``factors`` (H,), one per head."""
    model = copy.deepcopy(model)
    qkv = model.blocks[-1].attn.qkv
    rows = torch.as_tensor(factors, dtype=torch.float32).repeat_interleave(WIDTH // HEADS)
    qkv.weight[:WIDTH] *= rows[:, None]
    qkv.bias[:WIDTH] *= rows
    return model


def choose_factors(model: VisionTransformer, images: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """The factor of each head (H,) with which the maps overlap best with the objects.

    The best head takes the factor that maximises its own overlap. The others are searched in turn,
    twice, for the highest sum of the overlap of the mean map and the mean overlap of the heads: for
    the mean map alone, a weak head would be made uniform. images (B, h, w, 3) uint8, masks
    (B, h, w) bool.
    """
    logits = logits_of(model, images)  # (B, H, N)

    def scores(factors: np.ndarray) -> Scores:
        sharp = logits * torch.as_tensor(factors, dtype=torch.float32)[:, None]
        return score_maps(class_attention(sharp, images.shape[1]).numpy(), masks)

    def together(factors: np.ndarray) -> float:
        result = scores(factors)
        return result.mean_map + float(np.mean(result.heads))

    alone = np.array([scores(np.full(HEADS, factor)).heads for factor in FACTORS])
    factors = FACTORS[alone.argmax(axis=0)]
    best = int(alone.max(axis=0).argmax())
    for head in 2 * [other for other in range(HEADS) if other != best]:
        tried = np.tile(factors, (len(FACTORS), 1))
        tried[:, head] = FACTORS
        factors = max(tried, key=together)
    return factors
