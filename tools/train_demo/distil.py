"""The parts of self-distillation: head and networks, the teacher's targets, a measure to log."""

from __future__ import annotations

import torch
from model import build_vit
from torch import nn
from torch.nn import functional

CENTRE_MOMENTUM = 0.9


class DinoHead(nn.Module):
    """Projection to ``outputs`` logits: three layers, unit length, prototypes of unit length."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(width, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 128)
        )
        self.prototypes = nn.Parameter(torch.randn(outputs, 128))
        for module in self.mlp:
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Cosines of the projected features with the prototypes: (B, width) to (B, outputs)."""
        points = functional.normalize(self.mlp(features), dim=-1)
        return points @ functional.normalize(self.prototypes, dim=-1).T


class Network(nn.Module):
    """A backbone and what stands on its CLS token in training."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.backbone = build_vit()
        self.head = head

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(B, 3, h, w) normalised to logits (B, outputs)."""
        return self.head(self.backbone(images))


class LogitCeiling:
    """How far the CLS token's attention logits in the last block rise above a ceiling.

    Self-distillation is content with a few telling cells of an object, and attention narrows to
    them as training goes on. A ceiling over the logits, as soft-capping sets in language models
    (Gemma 2, 2024), leaves it to gain only by taking in more cells.
    """

    def __init__(self, backbone: nn.Module, ceiling: float) -> None:
        self.attention = backbone.blocks[-1].attn
        self.ceiling = ceiling
        self.seen: list[torch.Tensor] = []
        self.attention.qkv.register_forward_hook(self._see)

    def _see(self, _: nn.Module, __: object, out: torch.Tensor) -> None:
        if torch.is_grad_enabled():  # in training, not while judged
            self.seen.append(out)

    def excess(self) -> torch.Tensor:
        """Mean square of what patch logits have above their own mean plus the ceiling; a scalar.

        Over every forward pass since the last call, which it forgets.
        """
        parts = []
        for out in self.seen:
            batch, count, _ = out.shape
            q, k, _ = out.view(batch, count, 3, self.attention.num_heads, -1).unbind(2)
            logits = torch.einsum("bhd,bnhd->bhn", q[:, 0], k[:, 1:]) * self.attention.scale
            above = logits - logits.mean(dim=-1, keepdim=True) - self.ceiling
            parts.append(above.relu().square().mean())
        self.seen.clear()
        return torch.stack(parts).mean()


class DropHead:
    """Leaves out whole heads of the last block at random, drawn separately for each image.

    So that each head has to find the object by itself (DropHead, Zhou et al. 2020). What is kept
    is scaled up to the same mean.
    """

    def __init__(self, backbone: nn.Module, share: float) -> None:
        self.heads = backbone.blocks[-1].attn.num_heads
        self.share = share
        backbone.blocks[-1].attn.proj.register_forward_pre_hook(self._thin)

    def _thin(self, _: nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        (outputs,) = inputs  # (B, N, width), head after head
        if not self.share or not torch.is_grad_enabled():
            return (outputs,)
        kept = torch.rand(outputs.shape[0], 1, self.heads, 1) >= self.share
        kept = kept / kept.float().mean(dim=2, keepdim=True).clamp(min=1 / self.heads)
        return ((outputs.unflatten(-1, (self.heads, -1)) * kept).flatten(2),)


class Targets:
    """The teacher's outputs, centred so that none rules and sharpened so that they say something.

    The centre is a moving average of the teacher's outputs over the batches: (1, outputs).
    """

    def __init__(self, outputs: int, temperature: float) -> None:
        self.centre = torch.zeros(1, outputs)
        self.temperature = temperature

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits (B, outputs) to targets whose rows sum to 1; then moves the centre."""
        targets = ((logits - self.centre) / self.temperature).softmax(dim=-1)
        self.centre.lerp_(logits.mean(dim=0, keepdim=True), 1 - CENTRE_MOMENTUM)
        return targets


def matched(one: torch.Tensor, other: torch.Tensor) -> float:
    """How often the nearest of a batch's other views is that of the same object, 0..1."""
    one = functional.normalize(one - one.mean(dim=0), dim=-1)
    other = functional.normalize(other - other.mean(dim=0), dim=-1)
    nearest = (one @ other.T).argmax(dim=-1)
    return (nearest == torch.arange(one.shape[0])).float().mean().item()
