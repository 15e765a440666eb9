"""``attnviz models``."""

from __future__ import annotations

from typing import Annotated

import typer


def models(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON record a line, instead of the table.")
    ] = False,
) -> int:
    """The models known by name, their sizes and licences, and which weights are here already.

    Example: attnviz models --json
    """
    return 0
