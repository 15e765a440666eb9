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
    """A backbone and what stands on its class token in training."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.backbone = build_vit()
        self.head = head

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(B, 3, h, w) normalised to logits (B, outputs)."""
        return self.head(self.backbone(images))


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
