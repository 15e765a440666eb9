"""Where the options of a request were written, so that an error can name the line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import TYPE_CHECKING

from attnviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_OPTION = re.compile(r"(?:--|^(?=[a-z-]+: ))([a-z][a-z-]*)")
_FACTS_OF_A_MODEL = re.compile(r"\b(layers?|heads|size)\b")
"""What a model has or has not: such errors do not spell the option."""


def field_name(option: str) -> str:
    """An option as the field of an options class; a word that Python keeps for itself ends in _."""
    name = option.replace("-", "_")
    return f"{name}_" if iskeyword(name) else name


@dataclass(frozen=True)
class ConfigSource:
    """A file, and the lines on which it gives options (by field name: ``save_data``).

    ``line``: of what holds them all, such as the header of a table; None without one.
    """

    file: Path
    lines: Mapping[str, int] = field(default_factory=dict)
    line: int | None = None

    def locate(self, message: str, hint: str = "") -> UsageError | None:
        """The error with file and line in front; None where no option in it is from the file.

        Options are known by their spelling in the message: ``--save-data``, or ``images:`` at
        its start.
        """
        found = [*_OPTION.finditer(message), *_FACTS_OF_A_MODEL.finditer(message)]
        named = (field_name(each[1]) for each in found)
        line = next((self.lines[name] for name in named if name in self.lines), self.line)
        return None if line is None else UsageError(f"{self.file}:{line}: {message}", hint)
