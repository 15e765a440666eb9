"""Set how sharply each head of the last block looks, after training.

The logit ceiling of the training keeps attention soft, so that heads take in whole objects; read
as it is, a good part of its mass lies on the background. One factor a head, multiplied into the
query weights of the last block, is an inverse temperature of that head's softmax. It is chosen on
scenes of the training objects with their masks: these few numbers are all that ever sees a mask.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from evaluate import logits_of, score_maps
from model import HEADS, WIDTH, class_attention

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaluate import Scores
    from timm.models.vision_transformer import VisionTransformer

FACTORS = np.arange(0.5, 3.61, 0.1)


@torch.no_grad()
def sharpened(model: VisionTransformer, factors: np.ndarray) -> VisionTransformer:
    """A copy whose last block's logits are multiplied by ``factors`` (H,), one a head."""
    model = copy.deepcopy(model)
    qkv = model.blocks[-1].attn.qkv
    rows = torch.as_tensor(factors, dtype=torch.float32).repeat_interleave(WIDTH // HEADS)
    qkv.weight[:WIDTH] *= rows[:, None]
    qkv.bias[:WIDTH] *= rows
    return model


class Reading:
    """A model's logits on scenes with masks, and what its heads reach as they are sharpened.

    images (B, h, w, 3) uint8, masks (B, h, w) bool.
    """

    def __init__(self, model: VisionTransformer, images: np.ndarray, masks: np.ndarray) -> None:
        self._logits = logits_of(model, images)  # (B, H, N)
        self._masks = masks
        each = [self.scores(np.full(HEADS, factor)).heads for factor in FACTORS]
        self.alone = np.array(each)
        """The overlap of each head on its own at each factor: (len(FACTORS), H)."""

    @property
    def factors_alone(self) -> np.ndarray:
        """The factor that suits each head best on its own: (H,)."""
        return FACTORS[self.alone.argmax(axis=0)]

    @property
    def ranked(self) -> list[int]:
        """The heads by what they reach alone, the best first."""
        return np.argsort(-self.alone.max(axis=0), kind="stable").tolist()

    def scores(self, factors: np.ndarray, heads: Sequence[int] = range(HEADS)) -> Scores:
        """What some heads reach, and their mean map, with a factor a head (H,)."""
        sharp = self._logits * torch.as_tensor(factors, dtype=torch.float32)[:, None]
        maps = class_attention(sharp, self._masks.shape[1])[:, list(heads)]
        return score_maps(maps.numpy(), self._masks)

    def together(self, heads: Sequence[int]) -> np.ndarray:
        """Factors (H,) with which the mean map of some heads overlaps best.

        They are chosen one after the other, twice, beginning where each does best alone.
        """
        factors = self.factors_alone
        for head in (*heads, *heads):
            tried = np.tile(factors, (len(FACTORS), 1))
            tried[:, head] = FACTORS
            factors = max(tried, key=lambda some: self.scores(some, heads).mean_map)
        return factors
