"""TOML files with the line of every key: ``tomllib`` reads the values, the lines are found here."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PARTS = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*|[\[{]|[\]}]|\n|[^\"'\#\[\]{}\n]+",
    re.DOTALL,
)
_KEY = re.compile(r"\"((?:\\.|[^\"\\])*)\"|'([^']*)'|([\w-]+)")
_ERROR_PLACE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")


@dataclass(frozen=True)
class TomlFile:
    """What a file says, and where.

    ``lines``: (table, which of that name from 0, key) to line, from 1. Keys before any table are
    in table "". The key "" stands for the table's header.
    """

    path: Path
    content: Mapping[str, Any]
    lines: Mapping[tuple[str, int, str], int]

    def keys_of(self, table: str = "", number: int = 0) -> dict[str, int]:
        """The keys of one table, each with its line."""
        return {
            key: line
            for (name, place, key), line in self.lines.items()
            if (name, place) == (table, number) and key
        }

    def where(self, table: str = "", number: int = 0, key: str = "") -> str:
        """``FILE:LINE`` of a key, else of its table's header, else of the table as a key."""
        for wanted in ((table, number, key), (table, number, ""), ("", 0, table)):
            if wanted in self.lines:
                return f"{self.path}:{self.lines[wanted]}"
        return str(self.path)


def load_toml(path: Path) -> TomlFile:
    """Read a file.

    Raises:
        UsageError: It cannot be read, or is not a TOML; the message has the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not a TOML file ({error})") from error
    try:
        return TomlFile(path, tomllib.loads(text), _key_lines(text))
    except tomllib.TOMLDecodeError as error:
        found = _ERROR_PLACE.search(str(error))
        line = (found and found[1]) or len(text.rstrip().splitlines())
        reason = _ERROR_PLACE.sub("", str(error))
        raise UsageError(f"{path}:{line}: is not a TOML file ({reason})") from error


def _key_lines(text: str) -> dict[tuple[str, int, str], int]:
    """The line of every key and header of a text that is known to be TOML."""
    lines: dict[tuple[str, int, str], int] = {}
    headers: Counter[str] = Counter()
    table = ("", 0)
    for line, statement in _statements(text):
        name = _KEY.search(statement)
        if name is None:
            continue
        word = next(part for part in name.groups() if part is not None)
        if statement.startswith("["):
            word = statement.strip("[] \t\"'")
            table = (word, headers[word])
            headers[word] += 1
            word = ""
        lines[(*table, word)] = line
    return lines


def _statements(text: str) -> list[tuple[int, str]]:
    """Every header and every ``key = value``, with its first line; values may span several."""
    found: list[tuple[int, str]] = []
    line, depth, begun, statement = 1, 0, 1, ""
    # A line end is one character, and none is missing at the end.
    for part in _PARTS.findall(text.replace("\r\n", "\n") + "\n"):
        if part == "\n" and depth == 0:
            if statement.strip():
                found.append((begun, statement.strip()))
            statement = ""
        elif not part.startswith("#"):
            if not statement.strip():
                begun = line
            statement += part
            depth += (part in "[{") - (part in "]}")
        line += part.count("\n")
    return found
