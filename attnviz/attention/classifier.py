"""What relevance needs of a classifier."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Classifier(Protocol):
    """A classification head; ``models.head.ClassHead`` is one."""

    def logits(self, tokens: Tensor) -> Tensor:
        """Tokens (B, N, width) to logits (B, C)."""

    def reads(self, tokens: int) -> Tensor:
        """With what weight each of N tokens is read: (N,) float32, sum 1."""

    def direction(self, index: int) -> Tensor | None:
        """The weight (width,) of a class where CLS alone is read, and as it is; else None."""
