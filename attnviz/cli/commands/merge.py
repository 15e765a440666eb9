"""``attnviz merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.storage import path_of


def merge(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            parser=path_of,
            help="The table to write, .csv or .parquet.",
            show_default=False,
        ),
    ],
    parts: Annotated[
        list[Path],
        typer.Argument(
            metavar="PART",
            parser=path_of,
            help="The tables to join, of the same format.",
            show_default=False,
        ),
    ],
) -> int:
    """Join the tables of a run's parts, such as those of its shards, or their lists of failures.

    All parts must have the same columns, and no image may stand in two of them. Rows keep their
    order.

    Example: attnviz merge all.parquet part-0.parquet part-1.parquet
    """
    from attnviz.output.merge import merge_tables

    typer.echo(str(merge_tables(out, parts).path))
    return 0
