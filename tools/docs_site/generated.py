"""Pages that are written when the site is built: Python interface, gallery, list of decisions."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any

import attnviz
from attnviz import errors
from attnviz.cli.reproduce import redraw_command
from attnviz.domain.drawing import DrawStyle
from attnviz.domain.kinds import KINDS, CommandRequest
from attnviz.domain.options import option_fields
from attnviz.output.read_record import read_record
from tools.docs_site.repository import ROOT, heading_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FIGURES = ROOT / "docs" / "figures"
DRAWN = {".png", ".gif", ".svg"}
CAPTION = re.compile(r"!\[([^\]]+)\]\(docs/figures/([^)]+)\)")

FIELDS_APART = """\
    options:
      members: false
      separate_signature: false
      show_signature: false"""
"""For mkdocstrings: a table of the fields follows."""

REQUESTS = (CommandRequest, *(kind.request for kind in KINDS.values()), DrawStyle)
VALUES = (
    "attnviz.models.backbone.Backbone",
    "attnviz.domain.model.ModelInfo",
    "attnviz.domain.image.RgbImage",
    "attnviz.domain.image.PreparedImage",
    "attnviz.domain.geometry.FitGeometry",
    "attnviz.domain.geometry.Size",
)


def pages() -> Iterator[tuple[str, str]]:
    """The place and the text of each page."""
    yield (
        "api/index.md",
        reference(
            "Functions",
            "What `import attnviz` offers. [Examples](../python.md) are on a page of their own.",
            [f"attnviz.{name}" for name in attnviz.__all__ if not name.startswith("_")],
        ),
    )
    yield (
        "api/results.md",
        reference(
            "Results",
            "What the functions return. [Shapes](../shapes.md) explains the letters.",
            ["attnviz.domain.kinds.kind.Maps", *(home(kind.maps) for kind in KINDS.values())],
        ),
    )
    yield "api/requests.md", requests()
    yield "api/values.md", reference("Models and images", "What the functions take.", VALUES)
    yield (
        "api/errors.md",
        reference(
            "Errors",
            "What is raised on purpose. `str(error)` is the message, `error.hint` says what to do.",
            [
                home(value)
                for value in vars(errors).values()
                if inspect.isclass(value) and value.__module__ == errors.__name__
            ],
        ),
    )
    yield "gallery.md", gallery()
    yield "decisions/index.md", decisions()


def home(cls: type) -> str:
    """The name of a class in the module that defines it."""
    return f"{cls.__module__}.{cls.__qualname__}"


def reference(title: str, about: str, names: Iterable[str]) -> str:
    """A page of names, whose docstrings mkdocstrings fills in."""
    return "\n\n".join([f"# {title}", about, *(f"::: {name}" for name in names)])


def requests() -> str:
    """The requests with their fields, whose help is that of the options."""
    about = (
        "What `attnviz.compute_maps` and `attnviz.Watch` are asked for, and how figures are drawn. "
        "The fields are the options of the [command line](../cli.md)."
    )
    parts = ["# Requests", about]
    for request in REQUESTS:
        parts += [f"::: {home(request)}\n{FIELDS_APART}", fields_of(request)]
    return "\n\n".join(parts)


def fields_of(request: type[Any]) -> str:
    """The fields of a request as a table: type, default, meaning."""
    rows = ["| field | type | default | |", "| --- | --- | --- | --- |"]
    for item in option_fields(request):
        default = item.default
        shown = f"`{default!s}`" if isinstance(default, str) else f"`{default!r}`"
        cells = (
            f"`{item.field.name}`",
            f"`{item.field.type}`",
            "required" if default is dataclasses.MISSING else shown,
            item.option.help,
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def gallery() -> str:
    """Every figure of the documents with the command in its record that draws it again."""
    captions = {
        name: text for text, name in CAPTION.findall((ROOT / "README.md").read_text("utf-8"))
    }
    about = (
        "Each figure holds a record of how it was made. `attnviz info FIGURE` prints it, with the "
        "command that is shown here below the figure."
    )
    parts = ["# Gallery", about]
    for figure in sorted(FIGURES.iterdir()):
        if figure.suffix not in DRAWN:
            continue
        caption = captions.get(figure.name, f"{figure.name}")
        parts += [f"## {figure.name}", f"![{caption}](figures/{figure.name})"]
        if figure.name in captions:
            parts.append(f"*{caption}.*")
        command = command_of(figure)
        if command is not None:
            lines = textwrap.wrap(command, 74, break_long_words=False, break_on_hyphens=False)
            parts.append("    " + " \\\n        ".join(lines))
    return "\n\n".join(parts)


def command_of(figure: Path) -> str | None:
    """The command that draws a figure again; a screenshot has none."""
    record = read_record(figure)
    # Some figures are drawn by the Python interface, or are about more images than they name.
    if record is None or "pictures" in record or "in_python" in record:
        return None
    return redraw_command(record, figure.relative_to(ROOT))


def decisions() -> str:
    """The decisions, by number."""
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    lines = [f"- [{heading_of(page)}]({page.name})" for page in pages]
    about = "Choices that another developer might have made differently, and their reasons."
    return "\n".join(["# Design decisions", "", about, "", *lines])
