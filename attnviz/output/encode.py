"""Figures as the bytes of a file, with the record of their making. Nothing is written.

The same figure gives the same bytes: no dates, no random identifiers.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from attnviz.domain import ImageFormat
from attnviz.domain.drawing import largest_dpi
from attnviz.domain.figure_settings import figure_settings
from attnviz.errors import OutputError
from attnviz.output.record import KEY, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from PIL.Image import Image

    from attnviz.output.record import Made

PNG_LEVEL = 2
"""zlib level: figures are large flat areas, which a quick level compresses well. The quickest took
a third longer and gave larger files."""

MAKER = "attnviz"
"""What a file names as its program; without a version, so that versions do not change bytes."""

_SMALLEST_LEVEL = 9
_SVG_SIZE = re.compile(r'<svg [^>]*?width="([0-9.]+)pt" height="([0-9.]+)pt"')


def encoded_figure(figure: Figure, image_format: ImageFormat, dpi: int, made: Made) -> bytes:
    """One page as a PNG, PDF or SVG file that carries its provenance.

    Raises:
        OutputError: It has more pixels than can be drawn.
    """
    if image_format is ImageFormat.PNG:
        return encoded_png(page_image(figure, dpi), made, dpi=(dpi, dpi))
    drawn = io.BytesIO()
    metadata: dict[str, Any] = metadata_of(image_format, made)
    with figure_settings():
        figure.savefig(drawn, format=image_format.value, dpi=dpi, metadata=metadata)
    return drawn.getvalue()


def page_image(figure: Figure, dpi: int) -> Image:
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


def encoded_png(image: Image, made: Made, level: int = PNG_LEVEL, **options: Any) -> bytes:
    """An image as a PNG file that carries its provenance. level: of zlib, 0 to 9."""
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    for key, value in metadata_of(ImageFormat.PNG, made).items():
        text.add_text(key, value)
    packed = io.BytesIO()
    image.save(packed, format="PNG", compress_level=level, pnginfo=text, **options)
    return packed.getvalue()


def stacked_png(figures: Sequence[Figure], dpi: int, made: Made) -> bytes:
    """All pages as one PNG file, one below the other, packed as small as it gets."""
    from PIL.Image import new

    pages = [page_image(figure, dpi) for figure in figures]
    width = max(page.width for page in pages)
    stacked = new("RGB", (width, sum(page.height for page in pages)), "white")
    top = 0
    for page in pages:
        stacked.paste(page, (0, top))
        top += page.height
    return encoded_png(stacked, made, _SMALLEST_LEVEL)


def stacked_svg(figures: Sequence[Figure], dpi: int, made: Made) -> str:
    """All pages as one SVG file, one below the other. dpi: of images in it."""
    pages = [encoded_figure(figure, ImageFormat.SVG, dpi, made).decode() for figure in figures]
    if len(pages) == 1:
        return pages[0]
    width, top, parts = 0.0, 0.0, []
    for page in pages:
        element = page[page.index("<svg ") :]
        size = _SVG_SIZE.match(element)
        if size is None:
            raise OutputError("matplotlib wrote an SVG file without a size in points")
        parts.append(element.replace("<svg ", f'<svg y="{top:g}" ', 1))
        width, top = max(width, float(size[1])), top + float(size[2])
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {top:g}" '
    return f'{head}width="{width:g}pt" height="{top:g}pt">{"".join(parts)}</svg>'


def metadata_of(image_format: ImageFormat, made: Made) -> dict[str, Any]:
    """The record as metadata of a file, by the names of its format."""
    record = to_json(made)
    if image_format is ImageFormat.PNG:
        return {"Software": MAKER, KEY: record}
    if image_format is ImageFormat.PDF:
        fixed = {"Creator": MAKER, "Producer": "matplotlib", "CreationDate": None}
        return {"Subject": record, **fixed}
    return {"Description": record, "Creator": MAKER, "Date": None}
