"""The summary of a ``faithful`` run: means over all images with their standard errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnviz.domain.kinds.faithful import RANDOM_ROW
from attnviz.figures.faithful import COLUMNS, colours_of, title_of, value_range
from attnviz.figures.parts import theme
from attnviz.figures.parts.caption import RANDOM, model_parts, sheet_of
from attnviz.figures.parts.layout import GAP, MARGIN, Rect
from attnviz.figures.parts.plots import framed
from attnviz.figures.parts.text_table import TextRow, decimals_of, text_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from attnviz.domain import DrawStyle, ModelInfo
    from attnviz.figures.parts.page import Page, Sheet
    from attnviz.figures.parts.plots import Frame

    Scores = Mapping[str, Any]

_PLOT = 1.4
_LEAST_PLOT = 1.5
_HEADINGS = {
    "deletion": "Deletion: lower is better",
    "deletion_reversed": "Lowest first: higher is better",
    "insertion": "Insertion: higher is better",
    "saco": "SaCo: higher is better",
}


def draw_mean_scores(
    scores: Sequence[Scores], images: int, model: ModelInfo, style: DrawStyle
) -> tuple[Figure, ...]:
    """A plot a measure, with the mean of every map and its standard error, and a table of all.

    scores: one row a map, then that of the random orders, as ``MeanScores.rows`` gives them.
    """
    several = images > 1
    sheet = sheet_of(
        style,
        [
            *model_parts(model),
            f"{images:,} image{'s' * several}",
            *(["mean ± standard error over images"] if several else []),
            "line: random orders; SaCo: 1 faithful, 0 as random, -1 reversed",
        ],
        RANDOM if model.random_weights else "",
    )
    maps = [row for row in scores if row["map"] != RANDOM_ROW]
    random = next(row for row in scores if row["map"] == RANDOM_ROW)
    colours = colours_of(tuple(row["map"] for row in maps))
    known = [name for name in COLUMNS if name in scores[0]]
    plotted = ["deletion", "insertion" if "insertion" in known else "deletion_reversed", "saco"]
    _plots(sheet, plotted, maps, random, colours)
    digits = {name: decimals_of([row[name] for row in maps]) for name in known}

    def cells(row: Scores, ending: str = "") -> tuple[str, ...]:
        values = ((row[f"{name}{ending}"], digits[name]) for name in known)
        return tuple("" if value is None else f"{value:.{many}f}" for value, many in values)

    lines = []
    for row in (*maps, random):
        name, colour = row["map"], colours.get(row["map"], theme.QUIET)
        lines.append(TextRow(title_of(name), cells(row), colour))
        if several:
            lines.append(TextRow("± s.e.", cells(row, "_se")))
    text_table(sheet, [COLUMNS[name] for name in known], lines)
    return sheet.figures()


def _plots(
    sheet: Sheet,
    names: Sequence[str],
    maps: Sequence[Scores],
    random: Scores,
    colours: Mapping[str, str],
) -> None:
    """One plot a measure, side by side as far as they are wide enough."""
    across = max(1, min(len(names), int((sheet.width + 2 * GAP) / (_LEAST_PLOT + 2 * GAP))))
    width = (sheet.width - (across - 1) * 2 * GAP) / across
    for start in range(0, len(names), across):
        page = sheet.room(_PLOT)
        for column, name in enumerate(names[start : start + across]):
            left = MARGIN + column * (width + 2 * GAP)
            ends = [_ends(row, name) for row in (*maps, random) if row[name] is not None]
            y = value_range([end for pair in ends for end in pair])
            rect = Rect(left, page.y, width, _PLOT)
            frame = framed(page, rect, (0.0, float(len(maps))), y, _HEADINGS[name])
            if random[name] is not None:
                level = frame.down(random[name])
                box = frame.box
                page.stroke([[box.left, level], [box.right, level]], theme.QUIET, 0.8)
            slot = frame.box.width / len(maps)
            named = all(theme.text_width(title_of(row["map"])) < slot - 0.05 for row in maps)
            for index, row in enumerate(maps):
                if named:
                    x, base = frame.across(index + 0.5), frame.box.bottom + 0.12
                    page.text(x, base, title_of(row["map"]), align="center")
                _mark(page, frame, index + 0.5, row, name, colours[row["map"]])
        page.y += _PLOT
    sheet.skip(0.04)


def _ends(row: Scores, name: str) -> tuple[float, float]:
    error = row[f"{name}_se"] or 0.0
    return row[name] - error, row[name] + error


def _mark(page: Page, frame: Frame, x: float, row: Scores, name: str, colour: str) -> None:
    """A square at the mean, and a line over one standard error to both sides."""
    centre, level = frame.across(x), frame.down(row[name])
    low, high = (frame.down(end) for end in _ends(row, name))
    page.stroke([[centre, low], [centre, high]], colour, 1.2)
    page.block(Rect(centre - 0.035, level - 0.035, 0.07, 0.07), colour)
