"""One function a command; those of the kinds of figures come from ``figure.py``.

``COMMANDS`` is all of them in the order of the help. A command's module is imported, and its
options are built, when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.domain.kinds import KINDS
from attnviz.domain.options import resolve

if TYPE_CHECKING:
    from collections.abc import Callable

_OTHERS = {
    "compare": "compare:COMMAND",
    "eval": "evaluate:COMMAND",
    "evolve": "evolve:COMMAND",
    "explore": "explore:COMMAND",
    "render": "render:render",
    "info": "info:info",
    "merge": "merge:merge",
    "models": "models:models",
}

COMMANDS = (*KINDS, *_OTHERS)


def load_command(name: str) -> Callable[..., int]:
    """The function of a command, with its options as typer reads them."""
    if name in KINDS:
        from attnviz.cli.commands.figure import figure_command

        return figure_command(KINDS[name])
    function: Callable[..., int] = resolve(f"attnviz.cli.commands.{_OTHERS[name]}")
    return function


def about_command(name: str) -> str:
    """What the list of commands says of one; nothing is built for it."""
    text = KINDS[name].help if name in KINDS else load_command(name).__doc__
    return text or ""
