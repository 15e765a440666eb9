"""The parts of self-distillation: the head, the teacher's targets, and the term that spreads.

After DINO (Caron et al. 2021) with two things of its successors, which a batch of 64 needs more
than theirs did: targets balanced over the batch by Sinkhorn's iteration instead of a running
centre, and DINOv2's term that keeps class tokens apart.
"""

from __future__ import annotations

import torch
from model import build_vit
from torch import nn
from torch.nn import functional


class DinoHead(nn.Module):
    """Projection to ``outputs`` logits: three layers, unit length, prototypes of unit length.

    The prototypes are random and stay so. DINO freezes its last layer for the first epoch, lest
    the student learn to be uniform before it learns to see; the runs here are shorter than that.

    Batch normalisation, an option of DINO's own head, spreads the samples of a batch apart from
    the first step on; without it the targets of a small batch stay near uniform for long.
    """

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(width, 512, bias=False),
            nn.BatchNorm1d(512),
            nn.GELU(),
            nn.Linear(512, 512, bias=False),
            nn.BatchNorm1d(512),
            nn.GELU(),
            nn.Linear(512, 128, bias=False),
            nn.BatchNorm1d(128, affine=False),
        )
        self.register_buffer("prototypes", functional.normalize(torch.randn(outputs, 128), dim=-1))
        for module in self.mlp:
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Cosines of the projected features with the prototypes: (B, width) to (B, outputs)."""
        return functional.normalize(self.mlp(features), dim=-1) @ self.prototypes.T


class Network(nn.Module):
    """A backbone and what stands on its class token in training."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.backbone = build_vit()
        self.head = head

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, 3, h, w) normalised to class tokens (B, width) and logits (B, outputs)."""
        features = self.backbone(images)
        return features, self.head(features)


def sinkhorn(logits: torch.Tensor, temperature: float, rounds: int = 3) -> torch.Tensor:
    """Targets whose outputs are used evenly over the batch (Caron et al. 2020, SwAV)."""
    targets = torch.exp((logits - logits.max()) / temperature)
    for _ in range(rounds):
        targets = targets / targets.sum(dim=0, keepdim=True).clamp(min=1e-12)
        targets = targets / targets.sum(dim=1, keepdim=True)
    return targets


def spread_loss(features: torch.Tensor) -> torch.Tensor:
    """KoLeo: minus the mean log distance to the nearest neighbour (Oquab et al. 2023, DINOv2)."""
    points = functional.normalize(features, dim=-1)
    with torch.no_grad():
        nearest = (points @ points.T).fill_diagonal_(-2.0).argmax(dim=-1)
    return -((points - points[nearest]).norm(dim=-1) + 1e-6).log().mean()


def matched(one: torch.Tensor, other: torch.Tensor) -> float:
    """How often the nearest of a batch's other views is that of the same object, 0..1."""
    one = functional.normalize(one - one.mean(dim=0), dim=-1)
    other = functional.normalize(other - other.mean(dim=0), dim=-1)
    nearest = (one @ other.T).argmax(dim=-1)
    return (nearest == torch.arange(one.shape[0])).float().mean().item()
