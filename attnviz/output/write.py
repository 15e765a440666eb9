"""Figures, arrays and tables as files, complete or not at all, with the record of their making.

Two runs with the same input write the same bytes: no dates, no random identifiers.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from attnviz.domain import ImageFormat, WrittenFile
from attnviz.domain.figure_settings import figure_settings
from attnviz.output.atomic import complete_file
from attnviz.output.encode import encoded_figure, encoded_png, metadata_of
from attnviz.output.read_record import read_record
from attnviz.output.record import to_json, with_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnviz.domain import ByteArray
    from attnviz.output.plan import OutputPlan
    from attnviz.output.record import Made


def write_figures(
    figures: Sequence[Figure],
    plan: OutputPlan,
    formats: Sequence[ImageFormat],
    dpi: int,
    made: Made,
    beside: Mapping[str, str | None] | None = None,
) -> tuple[WrittenFile, ...]:
    """The pages of a figure in every format: one PDF with all pages, else one file a page.

    The first page is written last, so that its presence means a complete figure; its record names
    the other pages, and the files of ``beside``. Further pages of an earlier run are removed.
    """
    beside = beside or {}
    written = []
    for image_format in formats:
        suffix = image_format.value
        if image_format is ImageFormat.PDF and len(figures) > 1:
            record = with_files(made, beside)
            written.append(write_pages(figures, plan.path(suffix), dpi, record))
            continue
        others = dict.fromkeys(f"{number}.{suffix}" for number in range(2, len(figures) + 1))
        first = with_files(made, {**others, **beside})
        pages = [
            write_figure(
                figure, plan.page(suffix, number), image_format, dpi, made if number > 1 else first
            )
            for number, figure in reversed(list(enumerate(figures, 1)))
        ]
        written.extend(reversed(pages))
        _remove_pages(plan, suffix, len(figures) + 1)
    return tuple(written)


def _remove_pages(plan: OutputPlan, suffix: str, number: int) -> None:
    """Remove pages from this number on that attnviz once wrote."""
    while read_record(plan.page(suffix, number)) is not None:
        plan.page(suffix, number).unlink()
        number += 1


def write_figure(
    figure: Figure, path: Path, image_format: ImageFormat, dpi: int, made: Made
) -> WrittenFile:
    """One page as a PNG, PDF or SVG file that carries its provenance.

    Raises:
        OutputError: It cannot be written, or has more pixels than can be drawn.
    """
    # Encoded in memory first: whatever goes wrong on the disk is then an OutputError, and
    # whatever goes wrong in the drawing is not.
    return _write(path, encoded_figure(figure, image_format, dpi, made), "figure")


def write_pages(figures: Sequence[Figure], path: Path, dpi: int, made: Made) -> WrittenFile:
    """All pages in one PDF file.

    Raises:
        OutputError: It cannot be written.
    """
    from matplotlib.backends.backend_pdf import PdfPages

    drawn = io.BytesIO()
    with (
        figure_settings(),
        PdfPages(drawn, metadata=metadata_of(ImageFormat.PDF, made)) as pages,
    ):
        for figure in figures:
            pages.savefig(figure, dpi=dpi)
    return _write(path, drawn.getvalue(), "figure")


def write_array_png(
    pixels: ByteArray, path: Path, made: Made, kind: str = "overlay"
) -> WrittenFile:
    """Pixels (height, width, 3 or 4) uint8 as they are.

    Raises:
        OutputError: It cannot be written.
    """
    from PIL.Image import fromarray

    return _write(path, encoded_png(fromarray(pixels), made), kind)


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]], made: Made) -> WrittenFile:
    """Raw arrays under their names, and ``meta``: how they were made, as a JSON string.

    Raises:
        OutputError: It cannot be written.
    """
    import numpy as np

    # Before 2.1 numpy takes allow_pickle for the name of an array; numbers and text need none.
    members: dict[str, Any] = {**arrays, "meta": np.array(to_json(made))}
    with complete_file(path) as stream:
        # numpy dates every member 1980-01-01, so that equal arrays are equal files.
        np.savez(stream, **members)
    return WrittenFile(path, "data")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], kind: str = "table") -> WrittenFile:
    """Rows under the column names of the first; numbers in full precision, None empty.

    Raises:
        OutputError: It cannot be written.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    # File names that are not UTF-8 are in the table byte for byte.
    return _write(path, text.getvalue().encode("utf-8", "surrogateescape"), kind)


def write_page(path: Path, page: bytes) -> WrittenFile:
    """A page of HTML, as it is.

    Raises:
        OutputError: It cannot be written.
    """
    return _write(path, page, "page")


def write_text(path: Path, text: str, kind: str) -> WrittenFile:
    """A file of text in UTF-8.

    Raises:
        OutputError: It cannot be written.
    """
    return _write(path, text.encode("utf-8"), kind)


def _write(path: Path, data: bytes, kind: str) -> WrittenFile:
    with complete_file(path) as stream:
        stream.write(data)
    return WrittenFile(path, kind)
