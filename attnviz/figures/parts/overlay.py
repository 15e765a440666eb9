"""Maps as pixels: enlarged, coloured, and blended with the image; numpy only, no text.

matplotlib is imported only for colour maps that do not come with the package.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from attnviz.domain import Interpolation, Size
from attnviz.domain.colour_maps import PACKAGED, colour_table
from attnviz.domain.near_names import did_you_mean
from attnviz.domain.overlay import overlay_weight, visible_region
from attnviz.errors import UsageError
from attnviz.figures.parts.held import hold
from attnviz.figures.parts.scale import FLAT, Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from attnviz.domain import (
        BoolArray,
        ByteArray,
        FigureImage,
        FitGeometry,
        FloatArray,
    )


def _pixel_centres(count: int, start: float, stop: float, cells: int) -> NDArray[np.float64]:
    """Centres of ``count`` pixels in units of cells, where the cells span pixels start..stop."""
    return np.asarray((np.arange(count) + 0.5 - start) * (cells / (stop - start)), np.float64)


def _sample(
    values: FloatArray, y: NDArray[np.float64], x: NDArray[np.float64], how: Interpolation
) -> FloatArray:
    """Values (gh, gw) at all pairs of y and x, in cells; border cells extend outwards."""
    height, width = values.shape
    if how is Interpolation.NEAREST:
        row = np.clip(np.floor(y), 0, height - 1).astype(np.intp)
        column = np.clip(np.floor(x), 0, width - 1).astype(np.intp)
        return values[row[:, None], column[None, :]]
    return _interpolate(_interpolate(values, y).T, x).T


def _interpolate(values: FloatArray, positions: NDArray[np.float64]) -> FloatArray:
    """Linear interpolation along the first axis; a cell's value belongs to its centre."""
    last = values.shape[0] - 1
    position = np.clip(positions - 0.5, 0, last)
    below = np.minimum(position.astype(np.intp), max(last - 1, 0))
    above = np.minimum(below + 1, last)
    weight = (position - below).astype(np.float32)[:, None]
    return np.asarray(values[below] * (1 - weight) + values[above] * weight, np.float32)


def enlarge(values: FloatArray, size: Size, interpolation: Interpolation) -> FloatArray:
    """A map (gh, gw) at ``size`` pixels; the edges of the grid are the edges of the result.

    Nearest takes the cell under a pixel's centre ("nearest-exact"); bilinear places a cell's value
    at the cell's centre.
    """
    y = _pixel_centres(size.height, 0, size.height, values.shape[0])
    x = _pixel_centres(size.width, 0, size.width, values.shape[1])
    return _sample(values, y, x, interpolation)


@lru_cache(maxsize=32)
def _table(cmap: str) -> ByteArray:
    """A colour map as (256, 3) uint8."""
    if cmap in PACKAGED:
        return colour_table(cmap)
    import matplotlib as mpl
    from matplotlib.colors import LinearSegmentedColormap

    if cmap not in mpl.colormaps:
        hint = did_you_mean(cmap, mpl.colormaps) or "see matplotlib's colour maps"
        raise UsageError(f"no colour map named {cmap!r}", hint)
    chosen = mpl.colormaps[cmap]
    # matplotlib builds its interpolated maps with as many colours as the user's matplotlibrc says.
    if isinstance(chosen, LinearSegmentedColormap) and mpl.rcParamsOrig["image.lut"] == chosen.N:
        chosen = chosen.resampled(256)
    return np.asarray(chosen(np.arange(256) / 255, bytes=True))[:, :3].copy()


def level(values: FloatArray, limits: Limits) -> FloatArray:
    """Values as 0..1 between the limits, clipped."""
    span = (values - np.float32(limits.low)) / np.float32(limits.high - limits.low)
    return np.asarray(np.clip(span, 0, 1), np.float32)


def colour(values: FloatArray, limits: Limits, cmap: str) -> ByteArray:
    """Values of any shape as colours (..., 3) uint8."""
    index = np.minimum(level(values, limits) * 256, 255).astype(np.uint8)
    return _table(cmap)[index]


def mix(pixels: ByteArray, colours: ByteArray, weight: FloatArray) -> ByteArray:
    """Pixels (h, w, 3) blended with colours; weight (h, w) 0..1 is that of the colours."""
    share = weight[..., None]
    return np.rint(pixels * (1 - share) + colours * share).astype(np.uint8)


def overlay(
    pixels: ByteArray,
    values: FloatArray,
    limits: Limits,
    cmap: str,
    alpha: float,
    *,
    signed: bool = False,
) -> ByteArray:
    """Pixels (h, w, 3) with values (h, w) in colours over them, weighted by ``overlay_weight``.

    signed: the weight follows the distance from 0 instead of that from the low limit.
    """
    strength = level(values, limits)
    if signed:
        strength = level(np.abs(values), Limits(0.0, max(abs(limits.low), abs(limits.high))))
    return mix(pixels, colour(values, limits, cmap), overlay_weight(strength, alpha))


def blend(
    pixels: ByteArray,
    values: FloatArray,
    geometry: FitGeometry,
    limits: Limits,
    cmap: str,
    alpha: float,
    interpolation: Interpolation,
    *,
    signed: bool = False,
) -> ByteArray:
    """The image at its own size with a map (gh, gw) over the region that the cells cover.

    Pixels are unchanged where the map is at its low limit (``signed``: where it is 0), and where
    their centre lies outside the region.
    """
    out = pixels.copy()
    rows, columns, y, x = _region(pixels, geometry, *values.shape)
    sampled = _sample(values, y, x, interpolation)
    out[rows, columns] = overlay(out[rows, columns], sampled, limits, cmap, alpha, signed=signed)
    return out


def blend_colours(
    pixels: ByteArray,
    colours: FloatArray,
    geometry: FitGeometry,
    alpha: float,
    interpolation: Interpolation,
) -> ByteArray:
    """The same with colours (gh, gw, 3), 0..1, of one weight everywhere."""
    out = pixels.copy()
    rows, columns, y, x = _region(pixels, geometry, *colours.shape[:2])
    bands = [_sample(colours[..., band], y, x, interpolation) for band in range(3)]
    tints = np.rint(255 * np.stack(bands, axis=-1)).astype(np.uint8)
    ground = out[rows, columns]
    out[rows, columns] = mix(ground, tints, np.full(ground.shape[:2], alpha, np.float32))
    return out


def blend_colours(
    pixels: ByteArray,
    colours: FloatArray,
    geometry: FitGeometry,
    weight: float,
    interpolation: Interpolation,
) -> ByteArray:
    """The same with a colour per cell, (gh, gw, 3) as 0..1, all of one weight."""
    out = pixels.copy()
    rows, columns, y, x = _region(pixels, geometry, *colours.shape[:2])
    channels = [
        _sample(np.ascontiguousarray(c), y, x, interpolation) for c in np.moveaxis(colours, -1, 0)
    ]
    sampled = np.rint(255 * np.stack(channels, axis=-1)).astype(np.uint8)
    weights = np.full(sampled.shape[:2], weight, np.float32)
    out[rows, columns] = mix(out[rows, columns], sampled, weights)
    return out


def _region(
    pixels: ByteArray, geometry: FitGeometry, grid_height: int, grid_width: int
) -> tuple[slice, slice, NDArray[np.float64], NDArray[np.float64]]:
    """The rows and columns of pixels whose centres lie on the grid, and these centres in cells."""
    region, (height, width) = geometry.covered, pixels.shape[:2]
    y = _pixel_centres(height, region.top, region.bottom, grid_height)
    x = _pixel_centres(width, region.left, region.right, grid_width)
    rows, columns = _inside(y, grid_height), _inside(x, grid_width)
    return rows, columns, y[rows], x[columns]


def _inside(centres: NDArray[np.float64], cells: int) -> slice:
    start, stop = np.searchsorted(centres, [0.0, float(cells)])
    return slice(int(start), int(stop))


_VIEWS: WeakKeyDictionary[FigureImage, dict[Size, ByteArray]] = WeakKeyDictionary()


def model_view(image: FigureImage, size: Size) -> ByteArray:
    """The region of the image that the model saw, at ``size`` pixels; see ``visible_region``.

    The array is read-only: all panels of a figure share it for as long as the image exists.
    """
    views = _VIEWS.setdefault(image, {})
    if size not in views:
        views[size] = visible_region(image.pixels, image.geometry, size)
        views[size].flags.writeable = False
    return views[size]


def on_cells(
    pixels: ByteArray, geometry: FitGeometry, draw: Callable[[ByteArray], ByteArray]
) -> ByteArray:
    """Pixels (h, w, 3) of all that the model saw, with ``draw`` applied to what cells cover."""
    margins = geometry.margins
    if not any(margins):
        return draw(pixels)
    y, x = (round(share * side) for share, side in zip(margins, pixels.shape, strict=False))
    out = pixels.copy()
    inner = (slice(y, pixels.shape[0] - y), slice(x, pixels.shape[1] - x))
    out[inner] = draw(pixels[inner])
    return out


def dimmed_cells(pixels: ByteArray, geometry: FitGeometry, kept: BoolArray) -> ByteArray:
    """``dimmed`` of all that the model saw; what has no cell is not kept."""
    if not any(geometry.margins):
        return dimmed(pixels, kept)
    faded = dimmed(pixels, np.zeros_like(kept))
    view = on_cells(pixels, geometry, lambda part: dimmed(part, kept))
    drawn = on_cells(np.zeros_like(pixels), geometry, np.ones_like) > 0
    return np.asarray(np.where(drawn, view, faded), np.uint8)


def grey(pixels: ByteArray) -> FloatArray:
    """Luma of pixels, (h, w) float32, 0..255."""
    return pixels.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)


def dimmed(pixels: ByteArray, kept: BoolArray) -> ByteArray:
    """Pixels (h, w, 3), grey and faded where their cell is not kept. kept: (gh, gw)."""
    size = Size(pixels.shape[0], pixels.shape[1])
    mask = enlarge(kept.astype(np.float32), size, Interpolation.NEAREST) > 0
    faded = np.rint(0.3 * grey(pixels) + 0.7 * 222).astype(np.uint8)
    return np.asarray(np.where(mask[..., None], pixels, faded[..., None]), np.uint8)


def strongest_share(attention: FloatArray) -> float:
    """The highest value of all heads (H, gh, gw), each renormalised; in a video, of all frames."""
    return hold(0.0, float(_shares(attention).max()))[1]


def _shares(attention: FloatArray) -> FloatArray:
    mass = attention.sum(axis=(1, 2), keepdims=True)
    return np.divide(attention, mass, out=np.zeros_like(attention), where=mass > 0)


def by_head(
    pixels: ByteArray,
    attention: FloatArray,
    colours: ByteArray,
    alpha: float,
    highest: float | None = None,
) -> ByteArray:
    """Every head in its own colour over the darkened grey image (Caron et al. 2021, figure 3).

    attention (H, gh, gw) is renormalised per head; each cell takes the colour, of (H, 3) uint8, of
    the head with the highest value. The weight is that of any overlay, ``overlay_weight``, with the
    limits of that value: no colour at uniform attention, 1 / (gh * gw), or below, full colour at
    the highest value of all, ``highest`` if that is given. The shading of the image remains visible
    under the colour.
    """
    size = Size(pixels.shape[0], pixels.shape[1])
    shares = _shares(attention)
    winner, strength = shares.argmax(axis=0), shares.max(axis=0)
    uniform = 1 / strength.size
    highest = float(strength.max()) if highest is None else highest
    # Uniform in all heads: no cell stands out, and none has a colour.
    limits = Limits(uniform, highest if highest > (1 + FLAT) * uniform else 2 * uniform)
    weight = overlay_weight(level(strength, limits), alpha)
    head = enlarge(winner.astype(np.float32), size, Interpolation.NEAREST).astype(np.intp)
    light = grey(pixels)[..., None]
    # Dark images are brightened to the full range, or the colours would be lost on them.
    light = np.minimum(light / max(float(np.percentile(light, 99)), 16.0), 1.0)
    ground, tinted = 125 * light, colours[head] * (0.65 + 0.45 * light)
    weight = enlarge(weight, size, Interpolation.NEAREST)[..., None]
    mixed = np.rint(np.clip(ground * (1 - weight) + tinted * weight, 0, 255))
    return np.asarray(mixed, np.uint8)
