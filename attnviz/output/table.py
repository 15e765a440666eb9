"""The numbers of all images of a run in one file, CSV or Parquet, written as they come.

One row for each row of the figures' tables, after the image's path; columns in the order of the
first row. The file grows under a hidden name, so that memory stays flat, and gets its own when
the run ends.
"""

from __future__ import annotations

import csv
import io
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from attnviz.domain import WrittenFile
from attnviz.errors import UsageError
from attnviz.output.atomic import as_output_error, complete_file, sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SUFFIXES = (".csv", ".parquet")
IMAGE = "image"
_ROWS_A_GROUP = 4096
"""Rows of a Parquet file that are kept in memory until they are written together."""


def check_table(path: Path) -> Path:
    """The path, whose suffix names a format that can be written here.

    Raises:
        UsageError: Another suffix, a folder of that name, or Parquet without its package.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(
            f"--table: {path} ends neither in .csv nor in .parquet", "the suffix says the format"
        )
    if path.is_dir():
        raise UsageError(f"--table: {path} is a folder", "name a file")
    if suffix == ".parquet":
        try:
            import pyarrow as pa  # noqa: F401 - only asked whether it is there
        except ImportError as error:
            raise UsageError(
                "--table: Parquet needs the package pyarrow, which is not installed",
                "pip install 'attnviz[table]', or give a file that ends in .csv",
            ) from error
    return path


class TableFile:
    """A table that is being written.

    Raises:
        OutputError: From every method: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = complete_file(path)
        stream = self._file.__enter__()
        sweep(path.parent)
        parquet = path.suffix.lower() == ".parquet"
        self._rows: _Rows = _ParquetRows(stream) if parquet else _CsvRows(stream)
        self._open = True

    def add(self, image: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append an image's rows."""
        try:
            for row in rows:
                self._rows.add({IMAGE: str(image), **row})
        except OSError as error:
            self.abandon()
            raise as_output_error(self._path, error) from error

    def close(self) -> WrittenFile:
        """Give the file its name. Without a row, only the heading ``image`` is in it."""
        try:
            self._rows.close()
        except OSError as error:
            self.abandon()
            raise as_output_error(self._path, error) from error
        self._open = False
        self._file.__exit__(None, None, None)
        return WrittenFile(self._path, "table")

    def abandon(self) -> None:
        """Discard it, and leave an earlier table as it was."""
        if self._open:
            self._open = False
            # A writer that is not closed would write on when it is collected.
            with suppress(Exception):
                self._rows.close()
            self._file.__exit__(_Abandoned, _Abandoned(), None)


class _Abandoned(Exception):  # noqa: N818 - nothing went wrong with it
    """Ends the block of a file that is not wanted."""


class _Rows(Protocol):
    def add(self, row: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class _CsvRows:
    def __init__(self, stream: BinaryIO) -> None:
        # File names that are not UTF-8 are in the table byte for byte.
        self._text = io.TextIOWrapper(stream, "utf-8", "surrogateescape", newline="")
        self._writer: csv.DictWriter[str] | None = None

    def add(self, row: Mapping[str, Any]) -> None:
        if self._writer is None:
            self._writer = csv.DictWriter(self._text, list(row), lineterminator="\n")
            self._writer.writeheader()
        self._writer.writerow(row)

    def close(self) -> None:
        if self._writer is None:
            self._text.write(f"{IMAGE}\n")
        self._text.detach()


class _ParquetRows:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._writer: Any = None
        self._held: list[Mapping[str, Any]] = []

    def add(self, row: Mapping[str, Any]) -> None:
        # Parquet text is UTF-8 without exception.
        image = os.fsencode(row[IMAGE]).decode("utf-8", "replace")
        self._held.append({**row, IMAGE: image})
        if len(self._held) >= _ROWS_A_GROUP:
            self._write()

    def close(self) -> None:
        if self._held or self._writer is None:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        if self._writer is None:
            first = self._held[0] if self._held else {IMAGE: ""}
            fields = [(name, _parquet_type(value)) for name, value in first.items()]
            self._writer = parquet.ParquetWriter(self._stream, pa.schema(fields))
        schema = self._writer.schema
        self._writer.write_table(pa.Table.from_pylist(self._held, schema=schema))
        self._held.clear()


def _parquet_type(value: Any) -> Any:
    import pyarrow as pa

    if isinstance(value, str):
        return pa.string()
    return pa.int64() if isinstance(value, int) else pa.float64()
