"""What the shell is offered behind an option; nothing heavy is imported for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attnviz.domain.options import OptionField

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


def map_names(incomplete: str) -> list[str]:
    """Maps that a comparison shows and that begin like this."""
    from attnviz.domain import MapKind

    return [kind.value for kind in MapKind if kind.value.startswith(incomplete)]


COMPLETIONS: Mapping[str, Callable[[str], list[str]]] = {
    "model": model_names,
    "cmap": cmap_names,
    "show": map_names,
}
"""By the option's name."""


def completion_of(each: OptionField) -> Callable[[str], list[str]] | None:
    """What completes an option: its own values where they have names; None for what has none."""
    offered = each.option.form.offered
    if offered:
        return lambda incomplete: [name for name in offered if name.startswith(incomplete)]
    return COMPLETIONS.get(each.name)
