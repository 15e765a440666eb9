"""Whether figures can show names; matplotlib is imported only for what is not ASCII."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMED = 5
"""Maximum number of characters that a note lists."""


def missing_glyphs(names: Iterable[str]) -> tuple[str, ...]:
    """A note on the characters that no installed font has, with a package that helps, if any."""
    text = "".join(name for name in names if not name.isascii())
    if not text:
        return ()
    from attnviz.figures.parts.fonts import missing_characters, package_for

    missing = missing_characters(text)
    if not missing:
        return ()
    shown = " ".join(missing[:_NAMED])
    if len(missing) > _NAMED:
        shown += f" and {len(missing) - _NAMED} more"
    cure = f"the package {package_for(missing)} has one (Debian, Ubuntu)"
    return (f"no installed font has {shown}: names in figures have squares instead; {cure}",)
