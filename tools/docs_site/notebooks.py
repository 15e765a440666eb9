"""Notebooks as pages: their cells, and the outputs that they were committed with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nbconvert import MarkdownExporter
from traitlets.config import Config

from tools.docs_site.repository import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTEBOOKS = ROOT / "docs" / "notebooks"
# Tables of pandas bring a style of their own; without it they have the site's.
STYLE = re.compile(r"<style scoped>.*?</style>\n*", re.DOTALL)
# Python-Markdown changes the white space of lines, and with it the page inside a frame.
FRAME = re.compile(r"<iframe\b[^>]*>")
TABLE = '<table border="1" class="dataframe">'
DISPLAYED = ["text/html", "image/svg+xml", "image/png", "image/jpeg", "text/markdown", "text/plain"]


def notebooks() -> list[Path]:
    """Every notebook of the documents, by name. There may be none."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def converted(notebook: Path) -> Iterator[tuple[str, str | bytes]]:
    """The page of a notebook, and its figures, each with its place in the site.

    Nothing is run.
    """
    settings = Config()
    settings.NbConvertBase.display_data_priority = DISPLAYED
    settings.ExtractOutputPreprocessor.output_filename_template = (
        f"{notebook.stem}_{{cell_index}}_{{index}}{{extension}}"
    )
    text, resources = MarkdownExporter(config=settings).from_filename(str(notebook))
    download = f"[Download this notebook]({notebook.name})"
    text = FRAME.sub(lambda frame: frame[0].replace("\n", "&#10;"), text.replace(TABLE, "<table>"))
    heading, _, rest = STYLE.sub("", text).lstrip().partition("\n")
    yield f"notebooks/{notebook.stem}.md", f"{heading}\n\n{download}\n{rest}"
    for name, data in resources["outputs"].items():
        yield f"notebooks/{name}", data
