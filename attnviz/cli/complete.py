"""What the shell is offered behind an option; nothing heavy is imported for it."""

from __future__ import annotations

_CMAPS = (
    "cividis", "coolwarm", "gray", "hot", "inferno", "jet", "magma", "plasma", "turbo", "viridis",
)  # fmt: skip


def model_names(incomplete: str) -> list[str]:
    """Names of the catalogue that begin like this."""
    from attnviz.models.catalogue import MODELS

    return [name for name in MODELS if name.startswith(incomplete)]


def cmap_names(incomplete: str) -> list[str]:
    """Colour maps that are often used and begin like this."""
    return [name for name in _CMAPS if name.startswith(incomplete)]
