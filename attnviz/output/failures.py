"""The images that failed, as a file in the output folder for scripts to read."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from attnviz.output.write import write_csv

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from attnviz.domain import Shard, WrittenFile

NAME = "failures.csv"
_SECOND_NAME = "attnviz-failures.csv"
COLUMNS = ("image", "reason", "hint")


def failures_path(folder: Path, shard: Shard | None = None) -> Path:
    """Where the list goes: ``failures.csv``, or ``attnviz-failures.csv`` where that is another's.

    Of a shard: ``failures.0-of-8.csv``. No figure has that name: theirs hold the command.
    """
    part = "" if shard is None else f".{shard.index}-of-{shard.count}"
    path, second = (folder / name.replace(".csv", f"{part}.csv") for name in (NAME, _SECOND_NAME))
    return second if path.exists() and not _is_ours(path) else path


def write_failures(
    folder: Path, failures: Sequence[tuple[str, str, str]], shard: Shard | None = None
) -> WrittenFile | None:
    """Write the list of (image, reason, hint); where there is none, remove an earlier run's.

    Raises:
        OutputError: It cannot be written.
    """
    path = failures_path(folder, shard)
    if failures:
        rows = [dict(zip(COLUMNS, failure, strict=True)) for failure in failures]
        return write_csv(path, rows, "failures")
    if _is_ours(path):
        with suppress(OSError):
            path.unlink()
    return None


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.readline(64).rstrip() == ",".join(COLUMNS).encode()
    except OSError:
        return False
