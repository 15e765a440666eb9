"""The tables of a run's parts joined into one: the ``--table`` files, or the lists of failures.

Parts keep their order, and rows theirs. A part without a row (a shard of few images) adds none.
Memory stays flat: rows go through one by one, or row group by row group; only names are kept.
"""

from __future__ import annotations

import csv
import io
from contextlib import ExitStack
from typing import TYPE_CHECKING

from attnviz.domain import WrittenFile
from attnviz.errors import UsageError
from attnviz.output.atomic import complete_file
from attnviz.output.table import IMAGE, SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


def merge_tables(out: Path, parts: Sequence[Path]) -> WrittenFile:
    """Write the rows of all parts to ``out``; all of them CSV, or all of them Parquet.

    Raises:
        UsageError: Another suffix, a part that is not a table, parts with different columns, or a
            image that is in two parts.
        OutputError: ``out`` cannot be written.
    """
    _check_names(out, parts)
    if out.suffix.lower() == ".csv":
        _merge_csv(out, parts)
    else:
        _merge_parquet(out, parts)
    return WrittenFile(out, "table")


def _check_names(out: Path, parts: Sequence[Path]) -> None:
    suffix = out.suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"{out} ends neither in .csv nor in .parquet", "name a table to write")
    for part in parts:
        if part.suffix.lower() != suffix:
            raise UsageError(
                f"{part} is not a {suffix} file, as {out} will be", "merge tables of one format"
            )
        if not part.is_file():
            raise UsageError(f"{part} does not exist", "check the path")
    paths = [part.absolute() for part in parts]
    for number, part in enumerate(parts):
        if paths.index(part.absolute()) != number:
            raise UsageError(f"{part} is given twice")
        if part.absolute() == out.absolute():
            raise UsageError(f"{part} is also the table to write", "give that another name")


class _Owners:
    """Which part each image is in: no image may be in two."""

    def __init__(self) -> None:
        self._owners: dict[str, Path] = {}

    def take(self, images: Iterable[str], part: Path) -> None:
        for image in images:
            owner = self._owners.setdefault(image, part)
            if owner is not part:
                raise UsageError(
                    f"{image} is in {owner} and again in {part}",
                    "leave one of them out; shards of one run share no image",
                )


def _check_columns(columns: Sequence[str], part: Path, first: Sequence[str], whose: Path) -> None:
    if tuple(columns) == tuple(first):
        return
    other = [name for name in columns if name not in first]
    missing = [name for name in first if name not in columns]
    lines = [f"it {verb} {', '.join(n)}" for verb, n in (("has", other), ("lacks", missing)) if n]
    raise UsageError(
        f"the columns of {part} are not those of {whose}: "
        f"{' and '.join(lines) or 'their order differs'}",
        "merge tables of one command with the same options",
    )


def _not_ours(part: Path) -> UsageError:
    return UsageError(
        f"{part} has no column {IMAGE}: it is not a table of attnviz", "check the path"
    )


def _merge_csv(out: Path, parts: Sequence[Path]) -> None:
    owners = _Owners()
    first: tuple[list[str], Path] | None = None
    with complete_file(out) as stream:
        # File names that are not UTF-8 are in the tables byte for byte.
        text = io.TextIOWrapper(stream, "utf-8", "surrogateescape", newline="")
        writer = csv.writer(text, lineterminator="\n")
        for part in parts:
            for columns, row in _rows_of_csv(part):
                if first is None:
                    first = (columns, part)
                    writer.writerow(columns)
                _check_columns(columns, part, *first)
                owners.take([row[columns.index(IMAGE)]], part)
                writer.writerow(row)
        if first is None:
            writer.writerow([IMAGE])
        text.detach()


def _rows_of_csv(part: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Each row with the columns that its file has."""
    with part.open("rb") as source:
        rows = csv.reader(io.TextIOWrapper(source, "utf-8", "surrogateescape", newline=""))
        try:
            columns = next(rows, [])
            if IMAGE not in columns:
                raise _not_ours(part)
            for row in rows:
                if len(row) != len(columns):
                    raise UsageError(
                        f"{part} is not a CSV table: line {rows.line_num} has {len(row)} values, "
                        f"the first has {len(columns)}",
                        "check the file",
                    )
                yield columns, row
        except csv.Error as error:
            raise UsageError(f"{part} is not a CSV table: {error}", "check the file") from error


def _merge_parquet(out: Path, parts: Sequence[Path]) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            "Parquet needs the package pyarrow, which is not installed",
            "pip install 'attnviz[table]'",
        ) from error
    owners = _Owners()
    with ExitStack() as streams:
        tables = []
        for part in parts:
            stream = streams.enter_context(part.open("rb"))
            try:
                tables.append((part, parquet.ParquetFile(stream)))
            except (pa.ArrowInvalid, OSError) as error:
                raise UsageError(
                    f"{part} is not a Parquet file: {error}", "check the path"
                ) from error
            if IMAGE not in tables[-1][1].schema_arrow.names:
                raise _not_ours(part)
        filled = [(part, table) for part, table in tables if table.metadata.num_rows]
        for part, table in filled:
            names = table.schema_arrow.names
            _check_columns(names, part, filled[0][1].schema_arrow.names, filled[0][0])
        try:
            # A column of whole numbers in one part may have fractions in another.
            schema = pa.unify_schemas(
                [table.schema_arrow for _, table in filled or tables[:1]],
                promote_options="permissive",
            )
        except pa.ArrowTypeError as error:
            raise UsageError(
                f"the tables disagree about a column: {error}", "check them"
            ) from error
        with complete_file(out) as target, parquet.ParquetWriter(target, schema) as writer:
            for part, table in filled:
                for batch in table.iter_batches():
                    owners.take(batch.column(IMAGE).to_pylist(), part)
                    writer.write_table(pa.Table.from_batches([batch]).cast(schema))
