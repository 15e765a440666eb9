"""The interface of a classifier that relevance uses."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Classifier(Protocol):
    """A classification head; ``models.head.ClassHead`` is one."""

    def logits(self, tokens: Tensor) -> Tensor:
        """Tokens (B, N, width) to logits (B, C)."""

    def reads(self, tokens: int) -> Tensor:
        """The weight with which each of N tokens is pooled: (N,) float32, sum 1."""

    def direction(self, index: int) -> Tensor | None:
        """The weight (width,) of a class, where logits are linear in CLS alone; else None."""
