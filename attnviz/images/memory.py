"""Images that are in memory already: of Pillow, as arrays, as tensors.

Nothing is guessed from the values: the type says the range, the container says the order of the
axes, and whether a tensor is normalised is said by whoever gives it.

    Pillow image             any mode, as of a file: colour profile, alpha, orientation
    array (h, w, 3) uint8    sRGB
    array (h, w, 3) float    sRGB from 0 to 1
    tensor (3, h, w) uint8   sRGB
    tensor (3, h, w) float   normalised=False: sRGB from 0 to 1; normalised=True: a model input
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from attnviz.domain import (
    Box,
    FitGeometry,
    ImageFile,
    PreparedImage,
    RgbImage,
    Size,
    sha256_of,
)
from attnviz.errors import ImageError, UsageError
from attnviz.images.bands import bands_of_image
from attnviz.images.colour import bands_to_srgb, to_srgb
from attnviz.images.quiet import quiet
from attnviz.images.upright import orientation_of, upright

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import ByteArray, ModelInfo

_TOLERANCE = 1e-3
"""Of 255: how far a float may be from a whole number of 8 bits without a note."""

_BEYOND = 0.5
"""How far outside 0..1 the pixels behind a normalised tensor may be: resampling overshoots."""

_KINDS = (
    "give a path, a Pillow image, an array (height, width, 3) of uint8 or of floats from 0 to 1, "
    "or a tensor (3, height, width)"
)


def is_tensor(source: Any) -> bool:
    """Whether this is a tensor of torch, which need not be imported to tell."""
    return hasattr(source, "detach") and hasattr(source, "cpu")


def image_of(source: Any, *, normalised: bool | None = None, name: str | None = None) -> RgbImage:
    """An image in memory in sRGB, upright, of 8 bits a channel.

    normalised: of float tensors, False; nothing else takes it. name: what figures call the image.

    Raises:
        ImageError: Another kind of thing, shape or type, or floats outside 0..1.
        UsageError: A float tensor, and ``normalised`` is not given.
    """
    if normalised:
        raise UsageError(
            "a normalised tensor is the input of one model, and not an image",
            "attnviz.prepare(tensor, model, normalised=True) takes it",
        )
    if isinstance(source, Image.Image):
        return _of_pillow(source, name)
    if is_tensor(source):
        values = _channels_last(_values_of(source), "tensor")
        if values.dtype.kind == "f" and normalised is None:
            raise UsageError(
                "whether a float tensor is normalised cannot be told from its values",
                "say normalised=True (with the model's mean and std) or normalised=False (0 to 1)",
            )
        return _of_pixels(values, name or "tensor")
    if isinstance(source, np.ndarray):
        if source.ndim != 3 or source.shape[2] != 3:
            raise ImageError(f"an array of shape {source.shape} is not an image", _KINDS)
        return _of_pixels(source, name or "array")
    raise ImageError(f"an object of type {type(source).__name__} is not an image", _KINDS)


def prepared_of(source: Any, info: ModelInfo, *, name: str | None = None) -> PreparedImage:
    """A tensor or array (3, h, w) of floats that was normalised for a model: its very input.

    The image of figures is what the model's mean and standard deviation make of it.

    Raises:
        ImageError: Another shape or type, values that are not finite, or sides that are not
            multiples of the patch.
        UsageError: With the model's mean and standard deviation the values are far from pixels.
    """
    given = _values_of(source) if is_tensor(source) else source
    if not isinstance(given, np.ndarray):
        raise ImageError(
            f"an object of type {type(source).__name__} cannot be a normalised input",
            "give a tensor (3, h, w)",
        )
    values = _channels_last(given, "normalised input")
    if values.dtype.kind != "f":
        raise ImageError(f"a normalised input of {values.dtype} is not possible", "give floats")
    size = Size(*values.shape[:2])
    if min(size) < info.patch or size.height % info.patch or size.width % info.patch:
        raise ImageError(
            f"a model input of {size} is not in multiples of the patch of {info.patch}",
            "give the image itself, which is resized, or normalised=False",
        )
    values = np.ascontiguousarray(values, np.float32)
    if not np.isfinite(values).all():
        raise ImageError("a normalised input has values that are not finite", "look at its source")
    pixels = values * np.asarray(info.std, np.float32) + np.asarray(info.mean, np.float32)
    low, high = float(pixels.min()), float(pixels.max())
    if low < -_BEYOND or high > 1 + _BEYOND:
        mean, std = (",".join(f"{value:g}" for value in each) for each in (info.mean, info.std))
        raise UsageError(
            f"this tensor was not normalised for {info.name}: with its mean {mean} and std {std} "
            f"the pixels run from {low:.3g} to {high:.3g}, not from 0 to 1",
            "normalise it with these, or give the image",
        )
    shown = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
    image = _image(shown, name or "tensor", sha256_of(values.tobytes()))
    whole = Box(0.0, 0.0, float(size.height), float(size.width))
    tensor = np.ascontiguousarray(values.transpose(2, 0, 1))
    red, green, blue = (-mean / std for mean, std in zip(info.mean, info.std, strict=True))
    geometry = FitGeometry(size, size, info.patch, whole, info.stride)
    return PreparedImage(image, geometry, tensor, (red, green, blue))


def _values_of(tensor: Any) -> NDArray[Any]:
    plain = tensor.detach().cpu()
    # numpy has no bfloat16; float32 holds every value of it.
    values: NDArray[Any] = (plain.float() if plain.is_floating_point() else plain).numpy()
    return values


def _channels_last(values: NDArray[Any], what: str) -> NDArray[Any]:
    if values.ndim != 3 or values.shape[0] != 3:
        hint = "give (3, height, width)"
        if values.ndim == 4:
            hint += "; attnviz.prepare_batch takes several"
        raise ImageError(f"a {what} of shape {values.shape} is not an image", hint)
    return values.transpose(1, 2, 0)


def _of_pixels(values: NDArray[Any], name: str) -> RgbImage:
    """From (h, w, 3) of uint8 or floats 0..1."""
    if not values.size:
        raise ImageError(f"an image of shape {values.shape} has no pixels", _KINDS)
    if values.dtype == np.uint8:
        return _image(values, name)
    if values.dtype.kind != "f":
        raise ImageError(f"pixels of {values.dtype} have no known range", _KINDS)
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):
        raise ImageError(
            f"float pixels run from {low:.4g} to {high:.4g}, and not from 0 to 1",
            "divide by their range, or give uint8",
        )
    scaled = values * np.float64(255)
    pixels = np.rint(scaled)
    rounded = float(np.abs(scaled - pixels).max()) > _TOLERANCE
    image = _image(pixels.astype(np.uint8), name)
    return replace(image, notes=("float pixels rounded to 8 bits a channel",)) if rounded else image


def _of_pillow(source: Image.Image, name: str | None) -> RgbImage:
    """As a file of the same content is read; of several frames, the one that is open."""
    named = name or Path(str(getattr(source, "filename", "") or "image")).name
    try:
        with quiet():
            source.load()
            if source.mode.startswith("I") or source.mode == "F":
                rgb, notes = bands_to_srgb(bands_of_image(source, None, says_alpha=True), None)
            else:
                rgb, notes = to_srgb(source)
            pixels = np.asarray(upright(rgb, orientation_of(source)))
    except ImageError as error:
        raise ImageError(f"{named} {error.message}", error.hint) from error
    except (OSError, ValueError, SyntaxError) as error:
        raise ImageError(f"{named} cannot be decoded: {error}", _KINDS) from error
    return replace(_image(pixels, named), notes=notes)


def _image(pixels: NDArray[Any], name: str, digest: str | None = None) -> RgbImage:
    own: ByteArray = np.ascontiguousarray(pixels)
    own = own.copy() if own.base is not None or own is pixels else own
    path = Path(name)
    return RgbImage(ImageFile(path, Path(path.name)), own, digest or sha256_of(own.tobytes()))
