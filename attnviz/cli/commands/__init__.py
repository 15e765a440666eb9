"""One function a command; those of the kinds of figures come from ``figure.py``.

``COMMANDS`` is all of them in the order of the help. A command's module is imported, and its
options are built, when it is called.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from attnviz.domain.kinds import KINDS
from attnviz.domain.options import resolve

if TYPE_CHECKING:
    from collections.abc import Callable

_OTHERS = {
    "compare": (
        "compare:compare",
        "Models, checkpoints or images side by side, on one scale, in one figure.",
    ),
    "eval": (
        "evaluate:evaluate",
        (
            "How well attention draws objects: Jaccard indices of mass masks "
            "(the DINO paper's figure 4)."
        ),
    ),
    "evolve": (
        "evolve:evolve",
        "How attention changes while a model trains: one image under several checkpoints.",
    ),
    "explore": (
        "explore:explore",
        (
            "A page to explore an image's attention in a browser: "
            "hover a patch, see what it attends to."
        ),
    ),
    "registers": (
        "registers:registers",
        "Find the neurons that write outlier patches, for --test-registers.",
    ),
    "render": ("render:render", "Draw a figure set: many figures, described in one TOML file."),
    "info": (
        "info:info",
        "How a figure was made, read from the file itself, and the command that draws it again.",
    ),
    "merge": (
        "merge:merge",
        (
            "Join the tables of a run's parts, such as those of its shards, or their lists of "
            "failures."
        ),
    ),
    "models": (
        "models:models",
        "The models known by name, their sizes and licences, and which weights are here already.",
    ),
}
"""The function of a command and the first line of its docstring, so that the list of commands
imports none of them."""

COMMANDS = (*KINDS, *_OTHERS)


def load_command(name: str) -> Callable[..., int]:
    """The function of a command, with its options as typer reads them."""
    if name in KINDS:
        from attnviz.cli.commands.figure import figure_command

        return figure_command(KINDS[name])
    function: Callable[..., int] = resolve(f"attnviz.cli.commands.{_OTHERS[name][0]}")
    panels = getattr(sys.modules[function.__module__], "PANELS", None)
    if panels is None:
        return function
    from attnviz.cli.signature import with_options

    return with_options(function, *panels, name=name)


def about_command(name: str) -> str:
    """What the list of commands says of one; nothing is imported for it."""
    return KINDS[name].help if name in KINDS else _OTHERS[name][1]
