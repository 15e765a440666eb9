"""Figures, arrays and tables as files, complete or not at all, with the record of their making.

Two runs with the same input write the same bytes: no dates, no random identifiers.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from attnviz.domain import ImageFormat, WrittenFile
from attnviz.domain.drawing import largest_dpi
from attnviz.domain.figure_settings import figure_settings
from attnviz.errors import OutputError
from attnviz.output.atomic import complete_file
from attnviz.output.read_record import read_record
from attnviz.output.record import KEY, to_json, with_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from PIL.Image import Image

    from attnviz.domain import ByteArray, Provenance
    from attnviz.output.plan import OutputPlan
    from attnviz.output.record import Made

PNG_LEVEL = 2
"""zlib level: figures are large flat areas, which a quick level compresses well. The quickest took
a third longer and gave larger files."""

MAKER = "attnviz"
"""What a file names as its program; without a version, so that versions do not change bytes."""


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
        OutputError: It cannot be written.
    """
    if image_format is ImageFormat.PNG:
        return _write_png(_page_image(figure, dpi), path, made, "figure", dpi=(dpi, dpi))
    # Drawn into memory first: whatever goes wrong on the disk is then an OutputError, and
    # whatever goes wrong in the drawing is not.
    drawn = io.BytesIO()
    metadata: dict[str, Any] = _metadata(image_format, made)
    with figure_settings():
        figure.savefig(drawn, format=image_format.value, dpi=dpi, metadata=metadata)
    return _write(path, drawn.getvalue(), "figure")


def _page_image(figure: Figure, dpi: int) -> Image:
    """The page as RGB pixels: none is transparent, and a quarter less is to be packed.

    Raises:
        OutputError: It has more pixels than can be drawn.
    """
    import numpy as np
    from PIL.Image import fromarray

    width, height = (float(side) for side in figure.get_size_inches())
    largest = largest_dpi(width, height)
    if dpi > largest:
        raise OutputError(
            f"a page of {width:g} x {height:.1f} inches is too large for --dpi {dpi}",
            f"the largest for it is --dpi {largest}",
        )
    drawn = io.BytesIO()
    figure.set_dpi(dpi)
    figure.savefig(drawn, format="raw", dpi=dpi)
    columns, rows = figure.canvas.get_width_height(physical=True)
    pixels = np.frombuffer(drawn.getbuffer(), np.uint8).reshape(rows, columns, 4)
    return fromarray(pixels).convert("RGB")


def write_pages(figures: Sequence[Figure], path: Path, dpi: int, made: Made) -> WrittenFile:
    """All pages in one PDF file.

    Raises:
        OutputError: It cannot be written.
    """
    from matplotlib.backends.backend_pdf import PdfPages

    drawn = io.BytesIO()
    with (
        figure_settings(),
        PdfPages(drawn, metadata=_metadata(ImageFormat.PDF, made)) as pages,
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

    return _write_png(fromarray(pixels), path, made, kind)


def _write_png(image: Image, path: Path, made: Made, kind: str, **options: Any) -> WrittenFile:
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    for key, value in _metadata(ImageFormat.PNG, made).items():
        text.add_text(key, value)
    packed = io.BytesIO()
    image.save(packed, format="PNG", compress_level=PNG_LEVEL, pnginfo=text, **options)
    return _write(path, packed.getvalue(), kind)


def write_npz(
    path: Path, arrays: Mapping[str, NDArray[Any]], provenance: Provenance
) -> WrittenFile:
    """Raw arrays under their names, and ``meta``: the provenance as a JSON string.

    Raises:
        OutputError: It cannot be written.
    """
    import numpy as np

    meta = np.array(to_json(provenance))
    with complete_file(path) as stream:
        # numpy dates every member 1980-01-01, so that equal arrays are equal files.
        np.savez(stream, allow_pickle=False, **arrays, meta=meta)
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


def _write(path: Path, data: bytes, kind: str) -> WrittenFile:
    with complete_file(path) as stream:
        stream.write(data)
    return WrittenFile(path, kind)


def _metadata(image_format: ImageFormat, made: Made) -> dict[str, Any]:
    record = to_json(made)
    if image_format is ImageFormat.PNG:
        return {"Software": MAKER, KEY: record}
    if image_format is ImageFormat.PDF:
        fixed = {"Creator": MAKER, "Producer": "matplotlib", "CreationDate": None}
        return {"Subject": record, **fixed}
    return {"Description": record, "Creator": MAKER, "Date": None}
