"""Where the options of a request were written, so that an error can name the line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_OPTION = re.compile(r"--([a-z][a-z-]*)")


@dataclass(frozen=True)
class Origin:
    """A file, and the lines on which it gives options (by field name: ``save_data``).

    ``line``: of what holds them all, such as the header of a table; None without one.
    """

    file: Path
    lines: Mapping[str, int] = field(default_factory=dict)
    line: int | None = None

    def explain(self, message: str, hint: str = "") -> UsageError | None:
        """The error with file and line in front; None where no option in it is from the file.

        Options are known by their spelling in the message (``--save-data``).
        """
        named = (found[1].replace("-", "_") for found in _OPTION.finditer(message))
        line = next((self.lines[name] for name in named if name in self.lines), self.line)
        return None if line is None else UsageError(f"{self.file}:{line}: {message}", hint)
