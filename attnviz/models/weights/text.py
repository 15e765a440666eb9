"""Messages of other libraries, made fit for one line."""

from __future__ import annotations


def first_line(error: Exception) -> str:
    """The first line of an error's message, printable; the name of its type where it has none."""
    # Messages quote names from the file, which may hold anything.
    lines = str(error).strip().splitlines()
    line = "".join(letter if letter.isprintable() else "?" for letter in lines[0]) if lines else ""
    return line or type(error).__name__
