"""Standard output and error that take any text, whatever their encoding."""

from __future__ import annotations

import codecs
import sys
from typing import TextIO

_ESCAPE = "attnviz.escape"


def let_any_name_be_printed() -> None:
    r"""Make ``print`` never raise for a character that a stream's encoding does not have.

    File names that are not UTF-8 reach standard output byte for byte, so that what reads it finds
    the file. Everything else that the encoding lacks is escaped (``\u732b``).
    """
    codecs.register_error(_ESCAPE, _escape)
    _handle_errors(sys.stdout, _ESCAPE)
    _handle_errors(sys.stderr, "backslashreplace")


def _handle_errors(stream: TextIO, errors: str) -> None:
    # Not every stream is a file: a notebook's and a test's have no encoding to worry about.
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors=errors)


def _escape(error: UnicodeError) -> tuple[bytes, int]:
    """What stands for the characters of an error: Python's own marks of single bytes as those."""
    assert isinstance(error, UnicodeEncodeError)
    characters = error.object[error.start : error.end]
    return b"".join(map(_bytes_of, characters)), error.end


def _bytes_of(character: str) -> bytes:
    try:
        return character.encode("ascii", "surrogateescape")
    except UnicodeEncodeError:
        return character.encode("ascii", "backslashreplace")
