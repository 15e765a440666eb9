"""Any picture mode to 8-bit sRGB, by stated rules.

- 16-bit grey and 32-bit integers: v / 257, rounded, so that 0..65535 becomes 0..255 and v * 257
  becomes v again. Values outside 0..65535 are refused.
- Floats: 0..1 is scaled by 255; otherwise 0..255 is taken as it is; anything else is refused.
- Alpha, in whatever form, is laid on white.
- An embedded colour profile is followed (perceptual intent) unless it is sRGB already.
- CMYK without a usable profile goes by Pillow's plain formula, which knows no ink.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageCms

from attnviz.errors import ImageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.domain import ByteArray

_MODES_WITH_PROFILES = ("RGB", "CMYK", "L")
_PROFILE_TROUBLE = (ImageCms.PyCMSError, OSError, ValueError, TypeError)


def to_srgb(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """The picture in mode RGB, and notes on what was done. Raises ImageError (without the name)."""
    if image.mode.startswith("I"):
        return _grey(_integers_to_bytes(np.asarray(image))), ("16-bit grey, scaled by 1/257",)
    if image.mode == "F":
        grey, rule = _floats_to_bytes(np.asarray(image))
        return _grey(grey), (rule,)
    alpha = _alpha(image)
    opaque, notes = _follow_profile(_plain(image), image.info.get("icc_profile"))
    if alpha is None:
        return opaque, notes
    white = Image.new("RGB", image.size, "white")
    white.paste(opaque, mask=alpha)
    return white, (*notes, "transparency laid on white")


def _grey(values: ByteArray) -> Image.Image:
    return Image.fromarray(values).convert("RGB")


def _integers_to_bytes(values: NDArray[Any]) -> ByteArray:
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise ImageError(
            f"has integer values from {low} to {high}; only 0..65535 has a known meaning",
            "save it with 8 or 16 bits a channel",
        )
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _floats_to_bytes(values: NDArray[Any]) -> tuple[ByteArray, str]:
    low, high = float(values.min()), float(values.max())
    # A comparison with NaN is false, and min and max hand NaN on.
    if not (low >= 0 and high <= 255):
        raise ImageError(
            f"has float values from {low:g} to {high:g}; only 0..1 and 0..255 have a known meaning",
            "scale it to 0..1 first",
        )
    if high <= 1:
        return np.rint(values * np.float32(255)).astype(np.uint8), "float values 0..1 times 255"
    return np.rint(values).astype(np.uint8), "float values 0..255 taken as they are"


def _alpha(image: Image.Image) -> Image.Image | None:
    """The alpha channel, or None where it is missing or nowhere transparent."""
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
