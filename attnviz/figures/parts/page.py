"""Pages of a figure: pixels, shapes, strokes and text in inches, drawn with few artists.

There are no axes and no layout engine. A page records its content and becomes one matplotlib
``Figure`` with one collection for all shapes and one for all strokes. Images and maps are rendered
when the figure is saved, at exactly the pixels that they cover (PNG) or at a resolution for print
(PDF, SVG).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Affine2D

from attnviz.domain import Size
from attnviz.domain.figure_settings import figure_settings
from attnviz.domain.geometry import Margins
from attnviz.figures.parts import fonts, theme
from attnviz.figures.parts.layout import MARGIN, PAGE_HEIGHT, Rect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.backend_bases import RendererBase
    from matplotlib.transforms import Transform
    from numpy.typing import ArrayLike, NDArray

    from attnviz.domain import ByteArray, DrawStyle

PRINT_DPI = 300
"""Minimum resolution of images in PDF and SVG."""


class Raster(Protocol):
    """Something that can be rendered at any size, as (h, w, 3) uint8."""

    def __call__(self, size: Size, /) -> ByteArray:
        """The pixels at this size."""


class Stroke(NamedTuple):
    """A polyline, points (n, 2) as (x, y) in inches; width in points."""

    points: NDArray[np.float64]
    colour: str
    width: float
    dashed: bool = False


class RasterImage(Artist):
    """A raster over a rectangle of the page, rendered at the pixels that it covers.

    cells: rows and columns of a map with crisp cells. In vector files its size is a whole multiple
    of them, so that all cells are equal and viewers blur no more than a fraction of one.
    """

    def __init__(self, raster: Raster, rect: Rect, cells: Size | None, dpi: float) -> None:
        super().__init__()
        self.raster, self.rect, self.cells, self.dpi = raster, rect, cells, dpi
        self.set_zorder(1)

    def draw(self, renderer: RendererBase) -> None:
        """Render at the size that the renderer needs."""
        corners = np.array([[self.rect.left, self.rect.top], [self.rect.right, self.rect.bottom]])
        (x0, y1), (x1, y0) = self.get_transform().transform(corners)
        gc = renderer.new_gc()
        if renderer.option_scale_image():
            pixels = self.raster(self._print_size())
            transform = Affine2D().scale(x1 - x0, y1 - y0)
            # Renderers take images from the bottom row up.
            renderer.draw_image(gc, x0, y0, _opaque(pixels[::-1]), transform)
        else:
            left, bottom = round(x0), round(y0)
            size = Size(max(1, round(y1) - bottom), max(1, round(x1) - left))
            renderer.draw_image(gc, left, bottom, _opaque(self.raster(size)[::-1]))
        gc.restore()

    def _print_size(self) -> Size:
        dpi = max(self.dpi, PRINT_DPI)
        height, width = self.rect.height * dpi, self.rect.width * dpi
        if self.cells is None:
            return Size(max(1, round(height)), max(1, round(width)))
        factor = max(1, round(height / self.cells.height), round(width / self.cells.width))
        return Size(self.cells.height * factor, self.cells.width * factor)


def _opaque(pixels: ByteArray) -> ByteArray:
    out = np.empty((*pixels.shape[:2], 4), np.uint8)
    out[..., :3], out[..., 3] = pixels, 255
    return out


class PageText(Artist):
    """All text of a page.

    matplotlib's ``Text`` keeps a reference to its renderer, and so to a page of pixels, until the
    next garbage collection; here ``Text`` objects exist only while they are drawn.
    """

    def __init__(self, lines: Sequence[dict[str, Any]]) -> None:
        super().__init__()
        self.lines = tuple(lines)
        self.set_zorder(4)

    def texts(self) -> list[Text]:
        """The text objects, ready to be drawn or measured."""
        texts = [Text(**line, parse_math=False, usetex=False) for line in self.lines]
        for text in texts:
            if self.figure is not None:
                text.set_figure(self.figure)
            text.set_transform(self.get_transform())
        return texts

    def draw(self, renderer: RendererBase) -> None:
        """Draw all text."""
        for text in self.texts():
            text.draw(renderer)


class PageFigure(Figure):
    """A figure that is always saved under the settings that it was designed for."""

    def savefig(self, fname: Any, **kwargs: Any) -> None:
        """As ``Figure.savefig``."""
        with figure_settings():
            super().savefig(fname, **kwargs)


class Page:
    """One page under construction, ``width`` inches wide and as high as its content.

    ``margins``: what no cell covers at the edges of its panels.
    """

    def __init__(self, width: float, dpi: int) -> None:
        self.width, self.dpi = width, dpi
        self.y = MARGIN
        self.margins = Margins()
        self._rasters: list[tuple[Raster, Rect, Size | None]] = []
        self._shapes: list[tuple[NDArray[np.float64], str]] = []
        self._strokes: list[Stroke] = []
        self._texts: list[dict[str, Any]] = []

    def snapped(self, rect: Rect) -> Rect:
        """The rectangle with its edges on whole pixels."""
        left, top = self._snap(rect.left), self._snap(rect.top)
        least = 1 / self.dpi
        return Rect(
            left,
            top,
            max(self._snap(rect.right) - left, least),
            max(self._snap(rect.bottom) - top, least),
        )

    def _snap(self, inches: float) -> float:
        return round(inches * self.dpi) / self.dpi

    def image(self, raster: Raster, rect: Rect, cells: Size | None = None) -> None:
        """Pixels over a rectangle."""
        self._rasters.append((raster, rect, cells))

    def shape(self, points: ArrayLike, colour: str) -> None:
        """A filled polygon, points (n, 2) as (x, y)."""
        self._shapes.append((np.asarray(points, float), colour))

    def block(self, rect: Rect, colour: str) -> None:
        """A filled rectangle."""
        left, top, right, bottom = rect.left, rect.top, rect.right, rect.bottom
        self.shape([[left, top], [right, top], [right, bottom], [left, bottom]], colour)

    def stroke(self, points: ArrayLike, colour: str, width: float, *, dashed: bool = False) -> None:
        """A polyline, points (n, 2) as (x, y)."""
        self._strokes.append(Stroke(np.asarray(points, float), colour, width, dashed))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = theme.TEXT_PT,
        colour: str = theme.INK,
        align: str = "left",
        bold: bool = False,
        rotated: bool = False,
    ) -> None:
        """One line of text whose baseline starts, is centred or ends at (x, y).

        rotated: reads upwards, centred on x, and starts, is centred or ends at y.
        """
        options: dict[str, Any] = {"rotation": 90, "va": "bottom", "ha": "center"}
        if rotated:
            options["va"] = {"left": "bottom", "center": "center", "right": "top"}[align]
        else:
            options = {"ha": align, "va": "baseline"}
        options |= {"x": x, "y": y, "text": text, "color": colour}
        self._texts.append(options | {"fontproperties": fonts.font(size, text, bold=bold)})

    def figure(self) -> Figure:
        """The page as a matplotlib figure."""
        with figure_settings():
            return self._figure()

    def _figure(self) -> Figure:
        height = max(1, round((self.y + MARGIN) * self.dpi)) / self.dpi
        figure = PageFigure(figsize=(self.width, height), dpi=self.dpi, facecolor="white")
        figure.set_layout_engine("none")
        inches = Affine2D().scale(1, -1).translate(0, height) + figure.dpi_scale_trans
        for raster, rect, cells in self._rasters:
            self._add(figure, RasterImage(raster, rect, cells, self.dpi), inches)
        if self._shapes:
            points, colours = zip(*self._shapes, strict=True)
            shapes = PolyCollection(points, facecolors=colours, edgecolors="none", zorder=2)
            self._add(figure, shapes, inches)
        if self._strokes:
            lines = LineCollection(
                [stroke.points for stroke in self._strokes],
                colors=[stroke.colour for stroke in self._strokes],
                linewidths=[stroke.width for stroke in self._strokes],
                linestyles=[(0, (4, 2.5)) if s.dashed else "solid" for s in self._strokes],
                capstyle="projecting",
                joinstyle="miter",
                zorder=3,
            )
            self._add(figure, lines, inches)
        self._add(figure, PageText(self._texts), inches)
        return figure

    @staticmethod
    def _add(figure: Figure, artist: Artist, inches: Transform) -> None:
        artist.set_transform(inches)
        artist.set_clip_on(False)
        figure.add_artist(artist, clip=False)


class Sheet:
    """All pages of a figure, filled from the top; what does not fit goes to the next page.

    foot: lines at the foot of every page. warning: a line in bold above them.
    ``running``: the heading of further pages of the same content.
    """

    def __init__(self, style: DrawStyle, foot: Sequence[str], warning: str = "") -> None:
        self.style, self.foot, self.warning = style, tuple(foot), warning
        self.limit = max(PAGE_HEIGHT, 1.3 * style.width)
        self.limit -= theme.LINE_INCHES * (len(self.foot) + bool(warning)) + 0.15
        self.pages = [Page(style.width, style.dpi)]
        self.running = ""
        self._margins = Margins()

    @property
    def margins(self) -> Margins:
        """What no cell covers at the edges of the panels, see ``draw_panel``."""
        return self._margins

    @margins.setter
    def margins(self, margins: Margins) -> None:
        self._margins = margins
        for page in self.pages:
            page.margins = margins

    def _next_page(self) -> Page:
        page = Page(self.style.width, self.style.dpi)
        page.margins = self._margins
        self.pages.append(page)
        return page

    @property
    def width(self) -> float:
        """Inches between the margins."""
        return self.style.width - 2 * MARGIN

    def room(self, height: float) -> Page:
        """The page with room for ``height`` more inches: the current one or a new one."""
        page = self.pages[-1]
        if page.y > MARGIN and page.y + height > self.limit:
            page = self._next_page()
            if self.running:
                page.text(MARGIN, page.y + 0.1, self.running, size=theme.TITLE_PT, bold=True)
                page.y += theme.LINE_INCHES + 0.05
        return page

    def break_page(self) -> None:
        """Begin a new page, unless the current one is empty."""
        if self.pages[-1].y > MARGIN:
            self._next_page()

    def skip(self, height: float) -> None:
        """Add vertical space, except at the top of a page."""
        if self.pages[-1].y > MARGIN:
            self.pages[-1].y += height

    def figures(self) -> tuple[Figure, ...]:
        """The finished pages, each with its foot."""
        for index, page in enumerate(self.pages, 1):
            page.y += 0.03
            if self.warning:
                page.y += theme.LINE_INCHES
                page.text(MARGIN, page.y - 0.03, self.warning, colour=theme.WARNING, bold=True)
            for line in self.foot:
                page.y += theme.LINE_INCHES
                page.text(MARGIN, page.y - 0.03, line, colour=theme.QUIET)
            if len(self.pages) > 1:
                number = f"page {index} of {len(self.pages)}"
                page.y += theme.LINE_INCHES
                page.text(MARGIN, page.y - 0.03, number, colour=theme.QUIET)
        return tuple(page.figure() for page in self.pages)
