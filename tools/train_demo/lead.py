"""Let the weakest head of the last block learn where the others look together, after training.

In a DINO model of this size no head finds objects as well as the mean of all does. What several
weak heads agree on can be taught to one: its target is the mean map of the others on scenes of the
training objects, and only its query and key weights move. No mask takes part but through the few
factors of ``sharpen.py`` with which the others are read.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from evaluate import tokens_of
from model import HEADS, WIDTH, class_logits
from scenes import judged_scenes
from sharpen import Reading, sharpened
from torch.nn import functional

if TYPE_CHECKING:
    import numpy as np
    from banks import Banks
    from timm.models.vision_transformer import VisionTransformer

SCENES, AT_A_TIME, FIRST_SEED = 9000, 500, 100
STEPS, BATCH, LEARNING_RATE, WEIGHT_DECAY = 900, 128, 2e-3, 0.01


def led(
    model: VisionTransformer, banks: Banks, images: np.ndarray, masks: np.ndarray
) -> tuple[VisionTransformer, np.ndarray, int]:
    """The model with each head sharpened and its weakest one taught; the factors (H,); that head.

    banks: of the training objects. images (B, h, w, 3) uint8 and masks (B, h, w) bool: the scenes
    that the factors are chosen on.
    """
    reading = Reading(model, images, masks)
    *others, weakest = reading.ranked
    target = torch.as_tensor(reading.together(others)).float()
    tokens, maps = [], []
    for number in range(SCENES // AT_A_TIME):
        scenes, _ = judged_scenes(banks, count=AT_A_TIME, side=96, seed=FIRST_SEED + number)
        tokens.append(tokens_of(model, scenes))
        logits = class_logits(model, tokens[-1]) * target[:, None]
        maps.append(logits.softmax(dim=-1)[:, others, 1:].mean(dim=1))
    factors = reading.factors_alone
    sharp = sharpened(model, factors)
    return _taught(sharp, weakest, torch.cat(tokens), torch.cat(maps)), factors, weakest


def _taught(
    model: VisionTransformer, head: int, tokens: torch.Tensor, maps: torch.Tensor
) -> VisionTransformer:
    """A copy one head of whose last block gives these maps (B, N - 1) of tokens (B, N, width).

    The loss is the cross-entropy of the CLS token's attention to the patches, under AdamW with
    a learning rate that falls along half a cosine.
    """
    model = copy.deepcopy(model)
    attention = model.blocks[-1].attn
    width = WIDTH // HEADS
    query = slice(head * width, (head + 1) * width)
    key = slice(WIDTH + query.start, WIDTH + query.stop)
    weight, bias = attention.qkv.weight.detach(), attention.qkv.bias.detach()
    # A key's bias adds the same to all logits of a query, so it cannot learn.
    learned = [part.clone().requires_grad_() for part in (weight[query], bias[query], weight[key])]
    optimiser = torch.optim.AdamW(learned, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    targets = maps / maps.sum(dim=-1, keepdim=True)
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        chosen = torch.randint(len(tokens), (BATCH,), generator=generator)
        some = tokens[chosen]
        q = functional.linear(some[:, 0], learned[0], learned[1])
        k = functional.linear(some[:, 1:], learned[2])
        logits = torch.einsum("bd,bnd->bn", q, k) * attention.scale
        loss = -(targets[chosen] * logits.log_softmax(dim=-1)).sum(dim=-1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        falling.step()
    with torch.no_grad():
        weight[query], bias[query], weight[key] = learned
    return model
