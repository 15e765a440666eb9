"""From an image to a model input whose sides are multiples of the patch, and the way back.

Which size, by request (S an int, h x w a Size) and fit:

    request     aspect                     squash        crop                  pad
    S           shorter side S (1)         S x S         cover S x S, centred  fit in S x S (2)
    h x w       fit in h x w (1)           h x w         cover, centred        fit in h x w (2)
    original    nearest multiples          as aspect     trim right, bottom    pad right, bottom (2)
    None        as S = native height (3)   native size   as native size        as native size

(1) Aspect kept, then each side resized to the nearest multiple of the patch, at least one, never
    above h x w. With S the longer side is at most 16 S: an image that is more than 16 times as
    long as wide is scaled down until it is, since its tokens would fill any memory.
(2) The image is at the top left; right and below it is the mean colour, which normalises to 0.
(3) A native size that is not a multiple of the patch is rounded to the nearest one.

An exact size (squash, crop, pad) that is not a multiple of the patch is a UsageError: a user's
number is never rounded in silence. Under "original" a side shorter than a patch becomes one.
Resampling is one step with the model's own filter; an image that has the right size is untouched.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from attnviz.domain import Box, Fit, FitGeometry, PreparedImage, Size
from attnviz.domain.geometry import as_size
from attnviz.errors import UsageError
from attnviz.images.sizes import check_size

if TYPE_CHECKING:
    from attnviz.domain import ByteArray, FloatArray, ModelInfo, RgbImage
    from attnviz.domain.requests import SizeRequest

LONGEST = 16
"""Longer side at most this many times the asked shorter side."""

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def plan_fit(original: Size, patch: int, native: Size, size: SizeRequest, fit: Fit) -> FitGeometry:
    """The model input for an image of size ``original``, and the region of it that is covered.

    Raises UsageError as ``check_size`` does.
    """
    size = as_size(size)
    check_size(patch, size, fit)
    if size == "original":
        return _plan_original(original, patch, fit)
    if fit is Fit.ASPECT:
        target = _aspect_size(original, patch, native.height if size is None else size)
        return FitGeometry(original, target, patch, _whole(original))
    if size is None:
        target = Size(*(_nearest_multiple(side, 1, patch) for side in native))
    else:
        target = Size(size, size) if isinstance(size, int) else size
    if fit is Fit.SQUASH:
        region = _whole(original)
    elif fit is Fit.CROP:
        region = _centred_region(original, target)
    else:
        region = _padded_region(original, target, _inside(original, target))
    return FitGeometry(original, target, patch, region)


def prepare(
    image: RgbImage,
    info: ModelInfo,
    size: SizeRequest,
    fit: Fit,
    mean: tuple[float, float, float] | None = None,
    std: tuple[float, float, float] | None = None,
) -> PreparedImage:
    """Fit and normalise one image; ``mean`` and ``std`` replace the model's.

    The image's pixels stay as they are; a note is added where its sides were limited.
    """
    size = as_size(size)
    geometry = plan_fit(image.size, info.patch, info.native_size, size, fit)
    geometry = replace(geometry, stride=info.stride)
    content = _resample(image.pixels, geometry, info.interpolation)
    tensor = np.zeros((3, *geometry.model_input), dtype=np.float32)
    height, width = content.shape[:2]
    table = _normalised(mean or info.mean, std or info.std)
    for channel in range(3):
        # "clip" lets numpy write in place; no byte lies outside the table.
        where = tensor[channel, :height, :width]
        np.take(table[channel], content[:, :, channel], out=where, mode="clip")
    if fit is Fit.ASPECT and (size is None or isinstance(size, int)) and _is_limited(image.size):
        note = f"sides differ more than {LONGEST} times, so the model saw {geometry.model_input}"
        image = replace(image, notes=(*image.notes, note))
    red, green, blue = table[:, 0].tolist()
    return PreparedImage(image, geometry, tensor, (red, green, blue))


def _whole(original: Size) -> Box:
    return Box(0.0, 0.0, float(original.height), float(original.width))


def _nearest_multiple(numerator: int, denominator: int, patch: int) -> int:
    """The multiple of the patch nearest to numerator / denominator, halves up, at least one."""
    steps = (2 * numerator + denominator * patch) // (2 * denominator * patch)
    return max(1, steps) * patch


def _is_limited(original: Size) -> bool:
    return max(original) > LONGEST * min(original)


def _aspect_size(original: Size, patch: int, size: int | Size) -> Size:
    if isinstance(size, int):
        shorter, longer = min(original), max(original)
        # As a fraction, so that no rounding error decides between two multiples.
        up, down = (LONGEST * size, longer) if _is_limited(original) else (size, shorter)
        return Size(*(_nearest_multiple(side * up, down, patch) for side in original))
    height_binds = size.height * original.width <= size.width * original.height
    up, down = (size.height, original.height) if height_binds else (size.width, original.width)
    return Size(
        *(
            min(_nearest_multiple(side * up, down, patch), limit // patch * patch)
            for side, limit in zip(original, size, strict=True)
        )
    )


def _plan_original(original: Size, patch: int, fit: Fit) -> FitGeometry:
    if fit in (Fit.ASPECT, Fit.SQUASH):
        target = Size(*(_nearest_multiple(side, 1, patch) for side in original))
        return FitGeometry(original, target, patch, _whole(original))
    if fit is Fit.CROP:
        target = Size(*(max(1, side // patch) * patch for side in original))
        seen = Size(*map(min, original, target))
        return FitGeometry(original, target, patch, _whole(seen))
    target = Size(*(-(-side // patch) * patch for side in original))
    return FitGeometry(original, target, patch, _padded_region(original, target, original))


def _centred_region(original: Size, target: Size) -> Box:
    """The largest rectangle of the target's shape, in the middle of the image."""
    height, width = float(original.height), float(original.width)
    if target.height * original.width <= target.width * original.height:
        height = target.height * original.width / target.width
    else:
        width = target.width * original.height / target.height
    top, left = (original.height - height) / 2, (original.width - width) / 2
    if height == target.height and width == target.width:
        # Half a pixel of offset would blur an image that needs no resampling.
        top, left = float(int(top)), float(int(left))
    return Box(top, left, top + height, left + width)


def _inside(original: Size, target: Size) -> Size:
    """The image's size scaled to fit inside the target, aspect kept, whole pixels."""
    if target.height * original.width <= target.width * original.height:
        width = round(original.width * target.height / original.height)
        return Size(target.height, max(1, width))
    height = round(original.height * target.width / original.width)
    return Size(max(1, height), target.width)


def _padded_region(original: Size, target: Size, content: Size) -> Box:
    """The target in pixels of the image, of which ``content`` pixels are the whole image."""
    return Box(
        0.0,
        0.0,
        original.height * target.height / content.height,
        original.width * target.width / content.width,
    )


def _resample(pixels: ByteArray, geometry: FitGeometry, interpolation: str) -> ByteArray:
    """The part of the region that lies on the image, in pixels of the model input."""
    original, target, region = geometry.original, geometry.model_input, geometry.region
    bottom, right = min(region.bottom, original.height), min(region.right, original.width)
    height = round(target.height * (bottom - region.top) / (region.bottom - region.top))
    width = round(target.width * (right - region.left) / (region.right - region.left))
    on_pixels = all(float(edge).is_integer() for edge in (region.top, region.left))
    if on_pixels and (bottom - region.top, right - region.left) == (height, width):
        top, left = int(region.top), int(region.left)
        return pixels[top : top + height, left : left + width]
    # Pillow counts width first.
    resized = Image.fromarray(pixels).resize(
        (width, height), _FILTERS[interpolation], box=(region.left, region.top, right, bottom)
    )
    return np.asarray(resized)


def _normalised(mean: tuple[float, float, float], std: tuple[float, float, float]) -> FloatArray:
    """(3, 256) float32: what each of the 256 values becomes in each channel."""
    if min(std) <= 0:
        raise UsageError(f"standard deviation {std} must be above 0 in every channel")
    levels = np.arange(256, dtype=np.float32) / np.float32(255)
    offset, divisor = (np.array(values, dtype=np.float32)[:, None] for values in (mean, std))
    table: FloatArray = (levels - offset) / divisor
    return table
