"""Write docs/cli.md from the commands themselves: ``python tools/generate_cli_docs.py``.

With ``--check`` nothing is written, and the exit code says whether the file is up to date.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

from attnviz.cli.app import command_with_options
from attnviz.cli.commands import COMMANDS, load_command
from attnviz.domain.kinds import KINDS

DOCS = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
OPENING = """# The command line

Generated from the commands by `python tools/generate_cli_docs.py`; `attnviz COMMAND --help` says
the same.

    attnviz KIND INPUT... [options]
    attnviz compare INPUT... --show MAP,MAP... [options]
    attnviz render CONFIG [--check | --list]
    attnviz info FIGURE
    attnviz eval IMAGES MASKS [options]
    attnviz evolve CHECKPOINT... --image IMAGE [options]
    attnviz explore IMAGE [-o FILE] [options]
    attnviz registers INPUT... [-o FILE] [options]
    attnviz merge OUT PART...
    attnviz models

INPUT is any mix of files, folders (searched with their sub-folders), globs, and `-` for a list of
paths on standard input. Standard output gets the written files, one path a line (`--json`: one
record a line); progress, tables and failures go to standard error. Exit codes: 0 all done, 1 some
image failed, 2 wrong use, 130 interrupted.

Layers and heads count from 0, negative numbers from the end. Lists are written `0,2`, `0-3`,
`-2,-1` or `0 2`. `--config FILE` reads any of a command's options from a TOML file, under their
names without the dashes in front; what stands on the command line wins, and what is refused is told
with its file and line. For instance:

    model = "dinov2_vits14"
    heads = [0, 2]
    format = ["png", "pdf"]
    save-data = true
"""
SHARED = """## Options of every figure command

`attnviz eval` and `attnviz explore` have those of the panels Model and Images, and `--quiet` and
`--config`. `attnviz registers` also has those of the panel Drawing.
`attnviz compare` and `attnviz evolve` have all but those of the panel Run; the weights of `evolve`
are its arguments.
"""


def main() -> int:
    """Write or check the page."""
    text = page()
    if "--check" in sys.argv[1:]:
        current = DOCS.exists() and DOCS.read_text(encoding="utf-8") == text
        if not current:
            print(f"{DOCS} is stale: run python tools/generate_cli_docs.py", file=sys.stderr)
        return 0 if current else 1
    DOCS.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    """The whole page: each command with its own options, then what all figure commands share."""
    parts = [OPENING.replace("KIND", "|".join(KINDS))]
    shared: dict[str, list[str]] = {}
    for name in COMMANDS:
        function = load_command(name)
        panels = tables(command_with_options(name), get_type_hints(function))
        parts += [about(name, function), *panels.pop("", [])]
        for panel, lines in panels.items():
            shared.setdefault(panel, lines)  # the figure commands come first and have them all
    parts.append(SHARED)
    for panel, lines in shared.items():
        parts += [f"### {panel}\n", *lines]
    return "\n".join(parts)


def about(name: str, callback: Any) -> str:
    """What a command does, and its example."""
    *words, example = inspect.cleandoc(callback.__doc__).split("\n\n")
    told = [textwrap.fill(part, 100, break_on_hyphens=False) for part in words]
    return "\n\n".join(
        [f"## attnviz {name}", *told, "    " + example.removeprefix("Example: "), ""]
    )


def tables(command: Any, hints: dict[str, Any]) -> dict[str, list[str]]:
    """The lines of a table of options for every panel of a command's help."""
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        if parameter.param_type_name != "option" or parameter.hidden:
            continue
        panel = parameter.rich_help_panel
        start = ["| option | default | |", "| --- | --- | --- |"]
        lines = panels.setdefault(panel if isinstance(panel, str) else "", start)
        lines.append(row(parameter, hints[parameter.name]))
    return {panel: [*lines, ""] for panel, lines in panels.items()}


def row(parameter: Any, hint: Any) -> str:
    """One option as a row of a table."""
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    values = parameter.metavar or "|".join(choices(hint))
    spelled = f"{names} `{values}`" if values else names
    cells = (spelled, default(parameter), parameter.help)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def choices(hint: Any) -> list[str]:
    """The words that an option takes, where it takes words."""
    kinds = [hint, *get_args(hint)]
    return [
        str(word)
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, Enum)
        for word in kind
    ]


def default(parameter: Any) -> str:
    """The default as a reader should see it."""
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    value = parameter.default
    if isinstance(value, bool):
        pair = parameter.secondary_opts
        return f"`{(parameter.opts if value else pair)[0]}`" if pair else "off"
    if value is None or value in ([], ()):
        return ""
    return ", ".join(
        f"`{item}`" for item in (value if isinstance(value, list | tuple) else [value])
    )


if __name__ == "__main__":
    sys.exit(main())
