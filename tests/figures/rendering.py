"""The pixels of figures, and the positions of their images and texts."""

from __future__ import annotations

import io

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from attnviz.domain.figure_settings import figure_settings
from attnviz.figures.parts.page import PageText, RasterImage


def png(figure, **options) -> bytes:
    """The bytes of the PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", **options)
    return stream.getvalue()


def pixels_of(figure) -> np.ndarray:
    """(h, w, 3) uint8 as saved."""
    return np.asarray(Image.open(io.BytesIO(png(figure))).convert("RGB"))


def rasters_of(figure) -> list[RasterImage]:
    """The images, maps and colour bars, in drawing order."""
    return [artist for artist in figure.artists if isinstance(artist, RasterImage)]


def maps_of(figure) -> list[RasterImage]:
    """Only those drawn in crisp cells."""
    return [raster for raster in rasters_of(figure) if raster.cells is not None]


def part_of(figure, raster) -> np.ndarray:
    """The saved pixels under a raster."""
    dpi, rect = figure.dpi, raster.rect
    rows = slice(round(rect.top * dpi), round(rect.bottom * dpi))
    return pixels_of(figure)[rows, round(rect.left * dpi) : round(rect.right * dpi)]


def texts_of(figure) -> list:
    """All texts, as matplotlib's."""
    (words,) = [artist for artist in figure.artists if isinstance(artist, PageText)]
    return words.texts()


def words_of(figure) -> list[str]:
    """All texts."""
    return [text.get_text() for text in texts_of(figure)]


def word_boxes(figure) -> list[tuple[str, tuple[float, float, float, float]]]:
    """All texts with their extent in pixels (left, bottom, right, top)."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    with figure_settings():
        return [
            (text.get_text(), text.get_window_extent(renderer).extents) for text in texts_of(figure)
        ]
