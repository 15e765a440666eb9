"""Which file of the repository is which page of the site, and the links between them.

The documents link to each other by their places in the repository, so that they can be read there
as well. Some live outside docs/ and get a place in the site; links to them are rewritten.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs"

OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "license.txt",
    "attnviz/data/MODEL_CARD.md": "model-card.md",
    "configs/README.md": "figure-sets.md",
    "configs/gallery.toml": "gallery.toml",
    "sample_images/LICENSES.md": "sample-images.md",
    "tools/docs_site/site.css": "assets/site.css",
}
"""Files outside docs/, and their places in the site."""

PLACES = {
    # The navigation of the site takes the place of the table of pages.
    "docs/README.md": "index.md",
    "docs/decisions": "decisions/index.md",
    **OUTSIDE,
}

FENCE = re.compile(r"^ {0,3}(```|~~~)")
CODE = re.compile(r"`[^`]*`")
ITEM = re.compile(r"([-*]|\d+\.) ")
TEXT = re.compile(r"(?!#|[-*] |\d+\. )\S")
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def place_of(path: str) -> str | None:
    """The place in the site of a file or folder of the repository; None if it has none."""
    path = path.rstrip("/")
    if path in PLACES:
        return PLACES[path]
    inside = path.removeprefix(f"{DOCS}/")
    return inside if inside != path and (ROOT / path).is_file() else None


def source_of(place: str) -> str:
    """The file of the repository that a page of the site is made from."""
    outside = {there: path for path, there in OUTSIDE.items()}
    return outside.get(place, f"{DOCS}/{place}")


def adapted(markdown: str, place: str) -> str:
    """A page's text as MkDocs needs it: links as they are in the site, and Markdown of its dialect.

    GitHub's dialect has lists right after a line of text, and bars escaped in code inside tables.
    Code blocks stay as they are.
    """
    folder = posixpath.dirname(source_of(place))

    def moved(link: re.Match[str]) -> str:
        before, target, after = link.groups()
        there = place_of(posixpath.normpath(posixpath.join(folder, target)))
        if "://" in target or there is None:
            return link[0]  # MkDocs warns of those that lead nowhere
        return before + os.path.relpath(there, posixpath.dirname(place) or ".") + after

    lines, in_code = [], False
    for line in markdown.split("\n"):
        in_code ^= bool(FENCE.match(line))
        text = line if in_code or line.startswith("    ") else LINK.sub(moved, line)
        if ITEM.match(text) and not in_code and lines and TEXT.match(lines[-1]):
            lines.append("")  # without it Python-Markdown does not see the list
        lines.append(CODE.sub(_unescaped, text) if text.startswith("|") else text)
    return "\n".join(lines)


def _unescaped(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")


def heading_of(path: Path) -> str:
    """The text of a document's first line, which is its heading."""
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("#").strip()
