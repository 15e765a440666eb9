"""Names that come near a wrong one: of options, models, colour maps, figures and maps."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def near_names(
    name: str, known: Iterable[str], *, count: int = 3, cutoff: float = 0.6
) -> list[str]:
    """At most ``count`` of the known names, the nearest first; cutoff: least similarity, 0 to 1."""
    return get_close_matches(name, list(known), n=count, cutoff=cutoff)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the names that come near, or an empty one."""
    return suggestion(near_names(name, known))


def suggestion(names: Iterable[str]) -> str:
    """The names as a question, or an empty text without any."""
    text = " or ".join(names)
    return f"did you mean {text}?" if text else ""
