"""The figure of the ``faithful`` command: maps, curves of deletion and insertion, their areas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from attnviz.domain import Baseline
from attnviz.domain.kinds.faithful import DEVIATION_ROW, RANDOM_ROW, head_of
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import layer_text, sheet_with_caption
from attnviz.figures.parts.colour_bars import shared_bar
from attnviz.figures.parts.layout import GAP, MARGIN, Rect, ticks
from attnviz.figures.parts.panels import image_panel, map_panel, panel_aspect, panel_rows
from attnviz.figures.parts.plots import framed
from attnviz.figures.parts.scale import common_limits, scale_text
from attnviz.figures.parts.text_table import TextRow, decimals_of, text_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.domain import DrawStyle, FaithfulMaps, FigureImage, FloatArray, ModelInfo
    from attnviz.domain.kinds.kind import Row
    from attnviz.figures.parts.page import Page, Sheet
    from attnviz.figures.parts.plots import Frame

BAND = "#d4d4d4"
_PLOT = 1.55
_LEAST_PLOT = 2.2
"""Narrowest plot in inches; narrower ones are below each other."""
_UNDER = {
    Baseline.MEAN: "the mean colour",
    Baseline.BLUR: "the blurred image",
    Baseline.BLACK: "black",
}
_HEADINGS = {
    "deletion": ("Deletion, highest first: lower is better", "Deletion: lower is better"),
    "insertion": ("Insertion, highest first: higher is better", "Insertion: higher is better"),
    "reversed": ("Deletion, lowest first: higher is better", "Lowest first: higher is better"),
}
COLUMNS = {
    "deletion": ("Deletion", "Del."),
    "deletion_reversed": ("reversed", "rev."),
    "insertion": ("Insertion", "Ins."),
    "insertion_reversed": ("reversed", "rev."),
    "saco": ("SaCo",),
}
"""Titles of the columns of the table, by the names of the rows."""


def draw_faithful(
    maps: FaithfulMaps, image: FigureImage, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """The image and its maps, the curves with the band of random orders, the table of areas."""
    shared = common_limits(list(maps.maps), style)
    sheet = sheet_with_caption(model, image, style, _parts(maps, model, style))
    colours = colours_of(maps.names)
    panels = [image_panel(image)]
    for name, values in zip(maps.names, maps.maps, strict=True):
        panels.append(map_panel((title_of(name),), values, style, shared, swatch=colours[name]))
    panel_rows(sheet, panels, panel_aspect(image), at_least=4)
    if shared:
        shared_bar(sheet, shared, "Value")
    _plots(sheet, maps, list(colours.values()))
    table_of(sheet, maps.rows(), colours)
    return sheet.figures()


def colours_of(names: tuple[str, ...]) -> dict[str, str]:
    """The colour of every map: a head has its own, the mean is black as in all figures.

    The others have those that no head here has.
    """
    heads = {name: theme.head_colour(head) for name in names if (head := head_of(name)) is not None}
    free = [colour for colour in theme.HEAD_COLOURS if colour not in heads.values()]
    if "mean" in names:
        heads["mean"] = theme.INK
    others = (name for name in names if name not in heads)
    return {**dict.fromkeys(names, ""), **dict(zip(others, free, strict=False)), **heads}


def title_of(name: str) -> str:
    """A map's name as figures write it."""
    head = head_of(name)
    return name.capitalize() if head is None else f"Head {head}"


def table_of(sheet: Sheet, rows: tuple[Row, ...], colours: dict[str, str]) -> None:
    """The areas under the curves and SaCo, one row a map, then the random orders."""
    known = [name for name in COLUMNS if name in rows[0]]
    areas = {row["map"]: row for row in rows}
    mean, deviation = areas.pop(RANDOM_ROW), areas.pop(DEVIATION_ROW)
    digits = {key: decimals_of([row[key] for row in areas.values()]) for key in known}

    def cells(row: Row) -> tuple[str, ...]:
        return tuple("" if row[key] is None else f"{row[key]:.{digits[key]}f}" for key in known)

    lines = [TextRow(title_of(name), cells(row), colours[name]) for name, row in areas.items()]
    lines += [TextRow("Random, mean", cells(mean), BAND), TextRow("Random, s.d.", cells(deviation))]
    text_table(sheet, [COLUMNS[name] for name in known], lines)


def _parts(maps: FaithfulMaps, model: ModelInfo, style: DrawStyle) -> list[str]:
    """What the foot says of the measurement."""
    deletion, insertion = maps.baselines
    layered = any(n in ("mean", "max", "score") or head_of(n) is not None for n in maps.names)
    if maps.class_index is None:
        value = "f: cosine similarity to the output for the whole image"
    else:
        value = f"f: probability of class {maps.class_index}, {theme.number(maps.value)} of the "
        value += "whole image"
    hidden = f"deleted cells: {_UNDER[deletion]}"
    if maps.insertion is not None:
        hidden += f"; insertion into {_UNDER[insertion]}"
    return [
        layer_text(maps.layer, model) if layered else "",
        value,
        hidden,
        "protocol of Chefer 2021, 10 to 90 % of the cells" if maps.chefer else "",
        f"grey: range and mean of {len(maps.deletion.random)} random orders",
        "" if maps.chefer else "dashed: lowest values first",
        "table: areas under the curves; SaCo: 1 faithful, 0 as random, -1 reversed",
        scale_text(style),
    ]


def _plots(sheet: Sheet, maps: FaithfulMaps, colours: list[str]) -> None:
    """Two plots side by side where they are wide enough, else below each other."""
    deletion, insertion = maps.deletion, maps.insertion
    plots: list[tuple[str, FloatArray, FloatArray | None, FloatArray]]
    if insertion is None:
        plots = [
            ("deletion", deletion.highest, None, deletion.random),
            ("reversed", deletion.lowest, None, deletion.random),
        ]
    else:
        plots = [
            (name, each.highest, each.lowest, each.random) for name, each in maps.curves.items()
        ]
    width = (sheet.width - 2 * GAP) / 2
    beside = width >= _LEAST_PLOT
    if not beside:
        width = sheet.width
    page = sheet.room(_PLOT + 0.1)
    for index, (name, highest, lowest, random) in enumerate(plots):
        if not beside:
            page = sheet.room(_PLOT + 0.1)
        left = MARGIN + (index * (width + 2 * GAP) if beside else 0.0)
        rect = Rect(left, page.y, width, _PLOT)
        curves = [each for each in (highest, lowest, random) if each is not None]
        y = value_range([float(end) for each in curves for end in (each.min(), each.max())])
        fits = (h for h in _HEADINGS[name] if theme.text_width(h, theme.TITLE_PT) <= width)
        frame = framed(page, rect, (0.0, 1.0), y, next(fits, _HEADINGS[name][-1]))
        _share_ticks(page, frame)
        _band(page, frame, maps.shares, random)
        for colour, curve, reverse in _lines(colours, highest, lowest):
            x = maps.shares.tolist()
            page.stroke(frame.points(x, curve), colour, 0.7 if reverse else 1.3, dashed=reverse)
        if not beside or index == len(plots) - 1:
            page.y += _PLOT + 0.1


def _lines(
    colours: list[str], highest: FloatArray, lowest: FloatArray | None
) -> list[tuple[str, FloatArray, bool]]:
    """Colour, curve, and whether it is that of the reversed order, which is drawn first."""
    below = [] if lowest is None else zip(colours, lowest, strict=True)
    return [
        *((colour, curve, True) for colour, curve in below),
        *((colour, curve, False) for colour, curve in zip(colours, highest, strict=True)),
    ]


def value_range(values: list[float]) -> tuple[float, float]:
    """Round numbers around all values; from 0 where those reach down to half of the highest."""
    low, high = min(values), max(values)
    low = 0.0 if 0 < low < 0.5 * high else low
    steps = ticks(low, high, 5)
    step = steps[1] - steps[0] if len(steps) > 1 else (high - low) or 1.0
    low, high = math.floor(low / step + 1e-6) * step, math.ceil(high / step - 1e-6) * step
    # A tick at the upper end, k times the step, may be a rounding error above it.
    return round(low, 9), round(high, 9) + 1e-9


def _band(page: Page, frame: Frame, shares: FloatArray, random: FloatArray) -> None:
    """The range of the random orders as an area, and their mean as a line."""
    x = shares.tolist()
    top, bottom = frame.points(x, random.max(axis=0)), frame.points(x, random.min(axis=0))
    page.shape(np.concatenate([top, bottom[::-1]]), BAND)
    page.stroke(frame.points(x, random.mean(axis=0)), theme.QUIET, 0.8)


def _share_ticks(page: Page, frame: Frame) -> None:
    """The share of the cells that is changed, below the plot."""
    labels = {0.0: ("0", "left"), 0.5: ("50 %", "center"), 1.0: ("100 % of cells", "right")}
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = frame.across(value)
        page.stroke([[x, frame.box.bottom], [x, frame.box.bottom + 0.025]], theme.INK, 0.7)
        if value in labels:
            text, align = labels[value]
            page.text(x, frame.box.bottom + 0.135, text, align=align)
