"""Names as people read them: in a message, and in order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import PurePath

_DIGITS = re.compile(r"(\d+)")


def printable(name: PurePath | str) -> str:
    """The name on one line that any terminal prints: control and undecodable characters escaped."""
    text = str(name)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def natural_key(path: PurePath) -> tuple[tuple[tuple[str | int, ...], str], ...]:
    """Sort key that puts 2.png before 10.png and ignores case; equal names keep one order."""
    return tuple((_text_and_numbers(part), part) for part in path.parts)


def _text_and_numbers(part: str) -> tuple[str | int, ...]:
    # Splitting at the digits alternates text and numbers, so that equal positions hold equal types.
    pieces = _DIGITS.split(part.casefold())
    return tuple(int(piece) if index % 2 else piece for index, piece in enumerate(pieces))
