"""Any image mode to 8-bit sRGB, by stated rules.

- Numbers of more than 8 bits: as ``values.py`` says.
- Alpha, in whatever form, is laid on white.
- An embedded colour profile is followed (perceptual intent) unless it is sRGB already.
- CMYK without a usable profile goes by Pillow's plain formula, which is of no particular ink.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageCms

from attnviz.images.values import to_bytes

if TYPE_CHECKING:
    from attnviz.domain import ByteArray
    from attnviz.domain.requests import ValueRange
    from attnviz.images.bands import Bands

_ON_WHITE = "transparency laid on white"
_MODES_WITH_PROFILES = ("RGB", "CMYK", "L")
_PROFILE_TROUBLE = (ImageCms.PyCMSError, OSError, ValueError, TypeError)


def to_srgb(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """An image of 8 bits a channel in mode RGB, and notes on what was done."""
    alpha = _alpha(image)
    opaque, notes = _follow_profile(_plain(image), image.info.get("icc_profile"))
    if alpha is None:
        return opaque, notes
    white = Image.new("RGB", image.size, "white")
    white.paste(opaque, mask=alpha)
    return white, (*notes, _ON_WHITE)


def bands_to_srgb(
    bands: Bands, value_range: ValueRange | None
) -> tuple[Image.Image, tuple[str, ...]]:
    """Bands of any type of number in mode RGB, and notes on what was done.

    Bands that the caller chose are not those that a colour profile speaks about: it is left out.

    Raises:
        ImageError: Values without a known meaning. The message does not name the image.
    """
    eight = to_bytes(bands.values, value_range, top=bands.top)
    profile = None if bands.chosen else bands.profile
    image, more = _follow_profile(Image.fromarray(eight.values), profile)
    notes = (*bands.notes, *eight.notes, *more)
    alpha = None if bands.alpha is None else to_bytes(bands.alpha, None).values
    if alpha is not None and alpha.min() < 255:
        image = _on_white(image, alpha, premultiplied=bands.premultiplied)
        notes = (*notes, _ON_WHITE)
    if eight.missing is not None:
        image.paste("white", mask=Image.fromarray(eight.missing))
    return image, notes


def _on_white(image: Image.Image, alpha: ByteArray, *, premultiplied: bool) -> Image.Image:
    if premultiplied:
        light = np.asarray(image).astype(np.uint16) + (255 - alpha[:, :, None])
        return Image.fromarray(np.minimum(light, 255).astype(np.uint8))
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=Image.fromarray(np.ascontiguousarray(alpha)))
    return white


def _alpha(image: Image.Image) -> Image.Image | None:
    """The alpha channel, or None where there is none or it is opaque everywhere."""
    if not image.has_transparency_data:
        return None
    alpha = image.convert("RGBA").getchannel("A")
    lowest, _ = alpha.getextrema()
    return alpha if lowest != 255 else None


def _plain(image: Image.Image) -> Image.Image:
    """Without palette or alpha, in a mode that a colour profile can speak about: L, RGB, CMYK."""
    if image.mode in ("L", "LA"):
        return image.getchannel("L")
    if image.mode == "1":
        return image.convert("L")
    if image.mode in _MODES_WITH_PROFILES:
        return image
    if image.has_transparency_data:
        # A palette with alpha loses nothing on the way; the direct way warns about its entries.
        return image.convert("RGBA").convert("RGB")
    return image.convert("RGB")


def _follow_profile(
    image: Image.Image, profile: bytes | None
) -> tuple[Image.Image, tuple[str, ...]]:
    ignored: tuple[str, ...] = ()
    if profile:
        try:
            return _through_profile(image, profile)
        except _PROFILE_TROUBLE:
            ignored = ("its colour profile cannot be used and was ignored",)
    if image.mode == "CMYK":
        return image.convert("RGB"), (*ignored, "CMYK without a colour profile, plain conversion")
    return image.convert("RGB"), ignored


def _through_profile(image: Image.Image, profile: bytes) -> tuple[Image.Image, tuple[str, ...]]:
    source = ImageCms.ImageCmsProfile(BytesIO(profile))
    name = " ".join(ImageCms.getProfileDescription(source).split()) or "its colour profile"
    space = source.profile.xcolor_space.strip()
    if space == "RGB" and image.mode == "L":
        image = image.convert("RGB")
    if image.mode == space == "RGB" and name.startswith("sRGB"):
        return image, ()
    converted = ImageCms.profileToProfile(
        image, source, ImageCms.createProfile("sRGB"), outputMode="RGB"
    )
    if converted is None:
        raise ValueError("no conversion")
    return converted, (f"colours converted from {name} to sRGB",)
