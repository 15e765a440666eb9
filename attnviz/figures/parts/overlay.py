"""Maps as pixels: enlarged, coloured, and laid over the picture. Pure numpy, no axes, no text."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import matplotlib as mpl
import numpy as np
from PIL import Image

from attnviz.domain import Interpolation, Size
from attnviz.errors import UsageError
from attnviz.figures.parts.scale import common_limits, own_limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import (
        BoolArray,
        ByteArray,
        DrawStyle,
        FigureImage,
        FitGeometry,
        FloatArray,
        HeadsMaps,
    )
    from attnviz.figures.parts.scale import Limits

PADDING = 235
"""Grey, 0..255, of the part of a padded model input that lies beyond the picture."""


def _places(count: int, start: float, stop: float, cells: int) -> NDArray[np.float64]:
    """Where the centres of ``count`` pixels lie, in cells, when cells span start..stop (pixels)."""
    return np.asarray((np.arange(count) + 0.5 - start) * (cells / (stop - start)), np.float64)


def _sampled(
    values: FloatArray, rows: NDArray[np.float64], columns: NDArray[np.float64], how: Interpolation
) -> FloatArray:
    """Values at all pairs of places; beyond the outermost cell centres the border cells go on."""
    high, wide = values.shape
    if how is Interpolation.NEAREST:
        row = np.clip(np.floor(rows), 0, high - 1).astype(np.intp)
        column = np.clip(np.floor(columns), 0, wide - 1).astype(np.intp)
        return values[row[:, None], column[None, :]]
    return _between(_between(values, rows).T, columns).T


def _between(values: FloatArray, places: NDArray[np.float64]) -> FloatArray:
    """Linear interpolation along the first axis; a cell's value stands at its centre."""
    last = values.shape[0] - 1
    place = np.clip(places - 0.5, 0, last)
    below = np.minimum(place.astype(np.intp), max(last - 1, 0))
    above = np.minimum(below + 1, last)
    weight = (place - below).astype(np.float32)[:, None]
    return np.asarray(values[below] * (1 - weight) + values[above] * weight, np.float32)


def enlarge(values: FloatArray, size: Size, interpolation: Interpolation) -> FloatArray:
    """A map (gh, gw) at ``size`` pixels, edges on edges.

    Nearest takes the cell under the pixel's centre ("nearest-exact"); bilinear puts a cell's value
    at the cell's centre.
    """
    rows = _places(size.height, 0, size.height, values.shape[0])
    columns = _places(size.width, 0, size.width, values.shape[1])
    return _sampled(values, rows, columns, interpolation)


def enlarge_pixels(cells: ByteArray, size: Size) -> ByteArray:
    """Colours of cells (gh, gw, 3) at ``size`` pixels, crisp, edges on edges."""
    rows = _places(size.height, 0, size.height, cells.shape[0]).astype(np.intp)
    columns = _places(size.width, 0, size.width, cells.shape[1]).astype(np.intp)
    return cells[rows[:, None], columns[None, :]]


@lru_cache(maxsize=32)
def _table(cmap: str) -> ByteArray:
    """The colour map as (256, 3) uint8."""
    if cmap not in mpl.colormaps:
        near = difflib.get_close_matches(cmap, list(mpl.colormaps), 3)
        hint = f"did you mean {', '.join(near)}?" if near else "see matplotlib's colour maps"
        raise UsageError(f"no colour map named {cmap!r}", hint)
    return np.asarray(mpl.colormaps[cmap](np.arange(256) / 255, bytes=True))[:, :3].copy()


def level(values: FloatArray, limits: Limits) -> FloatArray:
    """Values as 0..1 between the limits, clipped."""
    span = (values - np.float32(limits.low)) / np.float32(limits.high - limits.low)
    return np.asarray(np.clip(span, 0, 1), np.float32)


def colour(values: FloatArray, limits: Limits, cmap: str) -> ByteArray:
    """Values of any shape as colours (..., 3) uint8."""
    place = np.minimum(level(values, limits) * 256, 255).astype(np.uint8)
    return _table(cmap)[place]


def overlay_weight(values: FloatArray, limits: Limits, alpha: float) -> FloatArray:
    """How much of the colour covers the picture: none at the low limit, ``alpha`` at the high one.

    In between the square root of the level, since colours at half a level are dark and would be
    lost on the picture under half the weight.
    """
    return np.sqrt(level(values, limits)) * np.float32(alpha)


def mix(pixels: ByteArray, colours: ByteArray, weight: FloatArray) -> ByteArray:
    """Pixels (h, w, 3) with colours laid over them; weight (h, w) 0..1, 1 hides the pixel."""
    share = weight[..., None]
    return np.rint(pixels * (1 - share) + colours * share).astype(np.uint8)


def blend(
    pixels: ByteArray,
    values: FloatArray,
    geometry: FitGeometry,
    limits: Limits,
    cmap: str,
    alpha: float,
    interpolation: Interpolation,
) -> ByteArray:
    """The picture, at its own size, with the map laid over the region that the model saw.

    Colours weigh what ``overlay_weight`` says, so that the picture stays as it was where nothing
    is looked at. Pixels whose centre lies outside the region keep their colour.
    """
    region, (high, wide) = geometry.region, pixels.shape[:2]
    rows = _places(high, region.top, region.bottom, values.shape[0])
    columns = _places(wide, region.left, region.right, values.shape[1])
    top, bottom = _inside(rows, values.shape[0])
    left, right = _inside(columns, values.shape[1])
    drawn = _sampled(values, rows[top:bottom], columns[left:right], interpolation)
    out = pixels.copy()
    out[top:bottom, left:right] = mix(
        out[top:bottom, left:right],
        colour(drawn, limits, cmap),
        overlay_weight(drawn, limits, alpha),
    )
    return out


def _inside(places: NDArray[np.float64], cells: int) -> tuple[int, int]:
    """First and last-plus-one pixel whose centre lies on the grid."""
    start, stop = np.searchsorted(places, [0.0, float(cells)])
    return int(start), int(stop)


def overlay_images(maps: HeadsMaps, image: FigureImage, style: DrawStyle) -> tuple[ByteArray, ...]:
    """One picture a head, at the picture's own size, without axes or text."""
    shared = common_limits(maps.attention, style)
    return tuple(
        blend(
            image.pixels,
            values,
            image.geometry,
            shared or own_limits(values),
            style.cmap,
            style.alpha,
            style.interpolation,
        )
        for values in maps.attention
    )


_VIEWS: WeakKeyDictionary[FigureImage, dict[Size, ByteArray]] = WeakKeyDictionary()


def model_view(image: FigureImage, size: Size) -> ByteArray:
    """What the model saw of the picture (its region), un-squashed, at ``size`` pixels.

    Where a padded region reaches beyond the picture it is light grey. The array is read-only: all
    panels of a figure share it, for as long as the picture lives.
    """
    made = _VIEWS.setdefault(image, {})
    if size not in made:
        made[size] = _visible_region(image, size)
        made[size].flags.writeable = False
    return made[size]


def _visible_region(image: FigureImage, size: Size) -> ByteArray:
    region, original = image.geometry.region, image.geometry.original
    scale_y = size.height / (region.bottom - region.top)
    scale_x = size.width / (region.right - region.left)
    top, bottom = max(region.top, 0.0), min(region.bottom, float(original.height))
    left, right = max(region.left, 0.0), min(region.right, float(original.width))
    y0, y1 = round((top - region.top) * scale_y), round((bottom - region.top) * scale_y)
    x0, x1 = round((left - region.left) * scale_x), round((right - region.left) * scale_x)
    out = np.full((*size, 3), PADDING, np.uint8)
    if y1 > y0 and x1 > x0:
        seen = Image.fromarray(image.pixels).resize(
            (x1 - x0, y1 - y0),
            Image.Resampling.BICUBIC,
            box=(left, top, right, bottom),
            reducing_gap=2.0,
        )
        out[y0:y1, x0:x1] = np.asarray(seen)
    return out


def grey(pixels: ByteArray) -> FloatArray:
    """Luma of pixels, (h, w) float32, 0..255."""
    return pixels.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)


def dimmed(pixels: ByteArray, kept: BoolArray) -> ByteArray:
    """Pixels whose cells are not kept, greyed and faded. kept: (gh, gw)."""
    high, wide = pixels.shape[:2]
    mask = enlarge(kept.astype(np.float32), Size(high, wide), Interpolation.NEAREST) > 0
    faded = np.rint(0.3 * grey(pixels) + 0.7 * 222).astype(np.uint8)
    return np.asarray(np.where(mask[..., None], pixels, faded[..., None]), np.uint8)


def by_head(
    pixels: ByteArray, attention: FloatArray, colours: ByteArray, alpha: float
) -> ByteArray:
    """Every head in its own colour over the darkened grey picture (Caron et al. 2021, figure 3).

    attention (H, gh, gw) is renormalised for each head; the head with the highest value wins a cell
    and colours it, (H, 3) uint8. The weight is the square root of that value over the highest of
    all, times alpha: the square root keeps broad heads visible beside peaked ones. The picture's
    light and shade go on under the colour.
    """
    size = Size(pixels.shape[0], pixels.shape[1])
    mass = attention.sum(axis=(1, 2), keepdims=True)
    parts = np.divide(attention, mass, out=np.zeros_like(attention), where=mass > 0)
    winner, strength = parts.argmax(axis=0), parts.max(axis=0)
    weight = np.sqrt(strength / max(float(strength.max()), np.finfo(np.float32).tiny))
    chosen = enlarge(winner.astype(np.float32), size, Interpolation.NEAREST).astype(np.intp)
    light = grey(pixels)[..., None]
    # A night picture is lifted to full range, or its colours would drown in the dark.
    light = np.minimum(light / max(float(np.percentile(light, 99)), 16.0), 1.0)
    ground, tinted = 125 * light, colours[chosen] * (0.65 + 0.45 * light)
    share = enlarge(weight, size, Interpolation.NEAREST)[..., None] * alpha
    mixed = np.rint(np.clip(ground * (1 - share) + tinted * share, 0, 255))
    return np.asarray(mixed, np.uint8)
