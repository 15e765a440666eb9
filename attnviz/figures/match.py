"""The figure of the ``match`` command: two images, the pairs between them, and their cosines."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.domain import Descriptor
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import layer_text, sheet_with_caption
from attnviz.figures.parts.histogram import split_histogram
from attnviz.figures.parts.layout import MARGIN, Rect
from attnviz.figures.parts.overlay import model_view
from attnviz.figures.parts.panels import TITLE_INCHES, panel_aspect

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnviz.domain import BoolArray, DrawStyle, FigureImage, MatchMaps, ModelInfo
    from attnviz.figures.parts.page import Page, Sheet

    Points = NDArray[np.float64]

TALLEST = 3.2
"""Height of the images in inches, at most."""

BETWEEN = 0.25
"""Inches between the two images."""

NUMBERED = 24
"""Up to this many pairs are numbered: as many as there are colours."""

_LIGHT, _OTHERS = "#ffffff", "#b9b9b9"
_CORNERS = 24
_ROUNDS = 40
_PARTS = {
    Descriptor.QUERY: "queries",
    Descriptor.KEY: "keys",
    Descriptor.VALUE: "values",
    Descriptor.TOKENS: "tokens",
}


class _Marks(NamedTuple):
    """Sizes in inches: radius of a point, its rim, width of a line, its rim."""

    radius: float
    rim: float
    line: float
    line_rim: float


_FEW, _MANY = _Marks(0.075, 0.012, 0.016, 0.010), _Marks(0.024, 0.006, 0.006, 0.0)
_DOT = 0.022
"""Radius of the mark of a patch whose point had to move aside."""


def draw_match(
    maps: MatchMaps, image: FigureImage, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """Both images at one height, each pair as two numbered points of one colour and a line.

    The histogram has the cosines of all mutual pairs, those of the pairs drawn in colour.
    """
    sheet = sheet_with_caption(model, image, style, _caption(maps, model))
    left, right, page = _images(sheet, maps, image)
    ends = [_on(left, image, maps.cells), _on(right, maps.like, maps.like_cells)]
    marks = _FEW if len(maps.cells) <= NUMBERED else _MANY
    for number in range(len(maps.cells)):
        _line(page, ends[0][number], ends[1][number], theme.head_colour(number), marks)
    for points, box in zip(ends, (left, right), strict=True):
        _points(page, points, box, marks)
    _histogram(sheet, maps)
    return sheet.figures()


def _images(sheet: Sheet, maps: MatchMaps, image: FigureImage) -> tuple[Rect, Rect, Page]:
    """Draw the images under their names; where they lie."""
    aspects = panel_aspect(image), panel_aspect(maps.like)
    height = min(TALLEST, (sheet.width - BETWEEN) / sum(aspects))
    page = sheet.room(height + TITLE_INCHES)
    top, start = page.y + TITLE_INCHES, MARGIN
    boxes = []
    for shown, aspect in zip((image, maps.like), aspects, strict=True):
        box = page.snapped(Rect(start, top, height * aspect, height))
        page.image(partial(model_view, shown), box)
        name = theme.shorten(theme.printable(shown.name), box.width, theme.TITLE_PT)
        page.text(box.left, top - 0.045, name, size=theme.TITLE_PT)
        boxes.append(box)
        start += height * aspect + BETWEEN
    page.y = top + height + 0.09
    return boxes[0], boxes[1], page


def _on(box: Rect, image: FigureImage, cells: NDArray[np.int64]) -> Points:
    """The middles of cells (M, 2) on the page, as (x, y)."""
    grid = image.geometry.grid
    shares = (cells + 0.5) / np.array([grid.height, grid.width])
    return np.stack(
        [box.left + shares[:, 1] * box.width, box.top + shares[:, 0] * box.height], axis=1
    )


def _line(page: Page, start: Points, stop: Points, colour: str, marks: _Marks) -> None:
    """A line with a light rim; a shape, so that points cover it."""
    along = stop - start
    across = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-9) / 2
    rims = ((marks.line + 2 * marks.line_rim, _LIGHT),) if marks.line_rim else ()
    for width, shade in (*rims, (marks.line, colour)):
        side = across * width
        page.shape([start - side, stop - side, stop + side, start + side], shade)


def _points(page: Page, points: Points, box: Rect, marks: _Marks) -> None:
    """The points of one image; numbers that would cover each other move aside of their patches."""
    centres = _apart(points, box, marks.radius + marks.rim) if marks is _FEW else points
    for number in range(len(points)):
        colour = theme.head_colour(number)
        if np.hypot(*(centres[number] - points[number])) > marks.rim:
            _circle(page, points[number], _DOT + marks.rim, _LIGHT)
            _circle(page, points[number], _DOT, colour)
        _circle(page, centres[number], marks.radius + marks.rim, _LIGHT)
        _circle(page, centres[number], marks.radius, colour)
        if marks is _FEW:
            x, y = centres[number].tolist()
            page.text(x, y + 0.034, str(number + 1), colour=theme.ink_on(colour), align="center")


def _circle(page: Page, centre: Points, radius: float, colour: str) -> None:
    turns = np.linspace(0, 2 * np.pi, _CORNERS, endpoint=False)
    page.shape(centre + radius * np.stack([np.cos(turns), np.sin(turns)], axis=1), colour)


def _apart(points: Points, box: Rect, radius: float) -> Points:
    """The points (M, 2), moved as far as circles around them need to lie in the box and apart."""
    low = np.array([box.left, box.top]) + radius
    high = np.maximum(np.array([box.right, box.bottom]) - radius, low)
    moved = points.clip(low, high)
    for _ in range(_ROUNDS):
        for one in range(len(moved)):
            for other in range(one):
                between = moved[one] - moved[other]
                distance = float(np.hypot(*between))
                if distance < 2 * radius:
                    # Of two patches at one place the later goes to the right.
                    way = between / distance if distance > 0 else np.array([1.0, 0.0])
                    moved[one] += way * (radius - distance / 2)
                    moved[other] -= way * (radius - distance / 2)
        moved = moved.clip(low, high)
    return moved


def _histogram(sheet: Sheet, maps: MatchMaps) -> None:
    """The cosines of mutual pairs, those that are drawn apart; none where there are no pairs."""
    values = maps.mutual_cosine
    if not values.size:
        return
    drawn = pairs_drawn(maps)
    count = int(drawn.sum())
    heading = f"Mutual pairs by cosine: {values.size}"
    if count < values.size:
        heading += f", of which {count} drawn (coloured)" if count else ", none of them drawn"
    colours = (theme.head_colour(0), _OTHERS)
    split_histogram(sheet, values, drawn, colours, heading, divided=False)


def pairs_drawn(maps: MatchMaps) -> BoolArray:
    """Which of the mutual pairs are drawn (K,): one for each, however many have the same cosine."""
    drawn = np.zeros(maps.mutual_cosine.shape, np.bool_)
    pairs = zip(map(tuple, maps.cells[maps.mutual]), maps.cosine[maps.mutual], strict=True)
    for _, cosine in dict.fromkeys(pairs):  # a patch that is asked for twice is one pair
        same = np.flatnonzero((maps.mutual_cosine == cosine) & ~drawn)
        drawn[same[:1]] = True
    return drawn


def _caption(maps: MatchMaps, model: ModelInfo) -> list[str]:
    geometry = maps.like.geometry
    size, grid = geometry.model_input, geometry.grid
    heads = "" if maps.part is Descriptor.TOKENS else ", heads joined"
    inside = ""
    if maps.threshold is not None:
        inside = f"inside masks of {theme.share(maps.threshold)} of the attention of the last layer"
    order = ""
    if not maps.asked and 1 < len(maps.cells) <= NUMBERED:
        whose = "CLS" if model.has_cls else "all patches"
        order = f"numbered by attention of {whose} in the last layer"
    return [
        f"second image: input {theme.size_text(size)}, grid {theme.size_text(grid)}",
        f"cosine of the {_PARTS[maps.part]} of {layer_text(maps.layer, model)}{heads}",
        _pairs_text(maps),
        inside,
        order,
    ]


def _pairs_text(maps: MatchMaps) -> str:
    """What the pairs are, and which of chosen patches are not the nearest of their nearest."""
    if not len(maps.cells):
        return "no mutual nearest neighbours"
    if not maps.asked:
        return "mutual nearest neighbours"
    numbers = ", ".join(str(number + 1) for number in np.flatnonzero(~maps.mutual))
    return "nearest neighbours of chosen patches" + (f"; not mutual: {numbers}" if numbers else "")
