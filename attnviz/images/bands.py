"""Which bands of a file are colours, and which is alpha: by what the file says.

A band beyond the colours is alpha only where the file calls it so; else it may be near infrared.
Files that name red, green and blue and hold more are read by those three, with a note. Files that
name no colours and hold several bands are refused until ``--bands`` says which to take.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.errors import ImageError
from attnviz.images.png import wide_values
from attnviz.images.tiff import BLACK_IS_ZERO, CMYK, RGB, WHITE_IS_ZERO, read_bands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from PIL import Image
    from PIL.ImageFile import ImageFile as PillowFile

    from attnviz.domain.requests import BandChoice
    from attnviz.images.tiff import TiffLayout

_ALPHA_MODES = {"LA": "L", "RGBA": "RGB"}
_INKS = {"CMYK": "inks", "LAB": "CIE L*a*b* values"}


@dataclass(frozen=True, kw_only=True)
class Bands:
    """Values of an image as its file holds them.

    values: (h, w) grey, or (h, w, 3) red, green, blue; any type of number. alpha: (h, w), of the
    same type or uint8; ``premultiplied``: the colours are already weighted by it. ``top``: largest
    whole number of the format, 0 for that of the type. ``chosen``: by the caller, not by the file.
    """

    values: NDArray[Any]
    alpha: NDArray[Any] | None = None
    premultiplied: bool = False
    profile: bytes | None = None
    top: int = 0
    chosen: bool = False
    notes: tuple[str, ...] = ()


def bands_of_tiff(layout: TiffLayout, data: bytes, choice: BandChoice | None) -> Bands | None:
    """The bands of a TIFF file; None where Pillow reads it as well: 8 bits, all bands named.

    Raises:
        ImageError: Several bands and no word of which are colours, or a band that is not there.
    """
    if choice is None and layout.unnamed > 0:
        _check_named(layout)
    if not layout.is_numeric or layout.unnamed < 0:
        return None
    as_pillow = layout.kind == "u" and layout.bits[0] == 8 and layout.unnamed == 0
    if as_pillow and choice is None:
        return None
    colours = _indices(choice, layout.bands) if choice else list(range(layout.colour_bands))
    with_alpha = [] if layout.alpha in (None, *colours) else [layout.alpha]
    read = read_bands(layout, data, [*colours, *(band for band in with_alpha if band is not None)])
    values = read[:, :, : len(colours)]
    if layout.photometric == WHITE_IS_ZERO and layout.kind == "u":
        values = ~values
    note = _taken(choice) if choice else _left_out(layout.bands, layout.colour_bands)
    return Bands(
        values=_grey_or_colour(values),
        alpha=read[:, :, -1] if with_alpha else None,
        premultiplied=layout.premultiplied,
        profile=layout.profile,
        chosen=choice is not None,
        notes=(note,) if choice or layout.unnamed > 0 else (),
    )


def _check_named(layout: TiffLayout) -> None:
    grey = layout.photometric in (WHITE_IS_ZERO, BLACK_IS_ZERO)
    if layout.photometric in (RGB, CMYK) or (grey and layout.unnamed == 1):
        return
    raise ImageError(
        f"has {describe(layout)} and does not say which are red, green and blue",
        "--bands 3,2,1 takes the third as red, the second as green and the first as blue",
    )


def describe(layout: TiffLayout) -> str:
    """``4 bands of 8 bits``."""
    bits = " and ".join(map(str, sorted(set(layout.bits))))
    return f"{layout.bands} band{'s' * (layout.bands > 1)} of {bits} bits"


def bands_of_png(image: PillowFile, data: bytes, choice: BandChoice | None) -> Bands:
    """The bands of a PNG file of 16 bits a channel, whose header is ``image``."""
    values = wide_values(image, data)
    channels = values.shape[2]
    key = image.info.get("transparency") if channels == 3 else None
    keyed = None if key is None else _unless(values, key)
    return _from_array(values, image, choice, with_alpha=channels in (2, 4), keyed=keyed)


def bands_of_image(
    image: Image.Image, choice: BandChoice | None, *, says_alpha: bool, top: int = 0
) -> Bands:
    """The bands of a decoded image of any mode; ``top`` as of ``Bands``.

    Raises:
        ImageError: Its bands are inks, or a band that is not there.
    """
    if image.mode in _INKS:
        raise ImageError(
            f"holds {_INKS[image.mode]} ({image.mode}), and --bands and --range need grey or RGB",
            "leave them out, or save it as RGB",
        )
    key = image.info.get("transparency")
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image)[:, :, None]
        keyed = _unless(values, (key,)) if isinstance(key, int) else None
        return replace(_from_array(values, image, choice, keyed=keyed), top=top)
    if image.mode == "1":
        image = image.convert("L")
    elif image.has_transparency_data and image.mode not in _ALPHA_MODES:
        image = image.convert("LA" if image.mode in ("L", "La") else "RGBA")
    elif image.mode not in ("L", "RGB", *_ALPHA_MODES):
        image = image.convert("RGB")
    values = np.asarray(image)
    values = values if values.ndim == 3 else values[:, :, None]
    with_alpha = says_alpha and image.mode in _ALPHA_MODES
    return _from_array(values, image, choice, with_alpha=with_alpha)


def _from_array(
    values: NDArray[Any],
    image: Image.Image,
    choice: BandChoice | None,
    *,
    with_alpha: bool = False,
    keyed: NDArray[np.uint8] | None = None,
) -> Bands:
    """Bands of an array (h, w, n) whose last one may be alpha; ``keyed``: alpha by colour."""
    count = values.shape[2]
    colours = _indices(choice, count) if choice else list(range(3 if count >= 3 else 1))
    last_is_alpha = with_alpha and count - 1 not in colours
    unnamed = count - len(colours) - last_is_alpha
    note = _taken(choice) if choice else _left_out(count, len(colours))
    return Bands(
        values=_grey_or_colour(values[:, :, colours]),
        alpha=values[:, :, -1] if last_is_alpha else keyed,
        profile=image.info.get("icc_profile"),
        chosen=choice is not None,
        notes=(note,) if choice or unnamed > 0 else (),
    )


def without_unnamed(image: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """A decoded image without a last band that its file does not call alpha.

    A band of one value, as some programs fill up pixels with, is not worth a note.
    """
    if image.mode not in _ALPHA_MODES:
        return image, ()
    count = len(image.getbands())
    low, high = image.getchannel("A").getextrema()
    notes = (_left_out(count, count - 1),) if low != high else ()
    # Plain conversion drops the last band; the profile stays in ``info``.
    return image.convert(_ALPHA_MODES[image.mode]), notes


def says_alpha(form: str, data: bytes, layout: TiffLayout | None) -> bool:
    """Whether the file calls a last band alpha that Pillow takes for it."""
    if layout is not None:
        return layout.alpha is not None
    if form == "JPEG2000":
        return _jpeg2000_says_alpha(data)
    if form == "TGA":
        return data[17] & 0x0F > 0
    return True


def _jpeg2000_says_alpha(data: bytes) -> bool:
    """Whether the channel definition box names an opacity. A bare codestream names nothing."""
    header = _box(data, b"jp2h")
    definitions = b"" if header is None else _box(header, b"cdef") or b""
    entries = (definitions[start : start + 6] for start in range(2, len(definitions) - 5, 6))
    return any(struct.unpack(">HHH", entry)[1] in (1, 2) for entry in entries)


def _box(data: bytes, wanted: bytes) -> bytes | None:
    """The content of the first box of a kind."""
    start = 0
    while start + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, start)
        head = 8
        if length == 1 and start + 16 <= len(data):
            (length,) = struct.unpack_from(">Q", data, start + 8)
            head = 16
        end = start + length if length else len(data)
        if end < start + head:
            return None
        if kind == wanted:
            return data[start + head : end]
        start = end
    return None


def _indices(choice: BandChoice, count: int) -> list[int]:
    """The chosen bands from 0; one of three that are the same."""
    if max(choice) > count:
        raise ImageError(
            f"has {count} band{'s' * (count > 1)}, and --bands names band {max(choice)}",
            "bands count from 1",
        )
    chosen = choice[:1] if len(set(choice)) == 1 else choice
    return [band - 1 for band in chosen]


def _taken(choice: BandChoice) -> str:
    if len(set(choice)) == 1:
        return f"band {choice[0]} taken as grey"
    return f"bands {', '.join(map(str, choice))} taken as red, green and blue"


def _left_out(count: int, colours: int) -> str:
    first = {1: "the first is taken as grey", 3: "the first three are taken as red, green and blue"}
    taken = first.get(colours, f"the first {colours} are taken as its colours")
    return f"{count} bands, of which {taken}; --bands takes others"


def _unless(values: NDArray[Any], key: Sequence[int]) -> NDArray[np.uint8]:
    """Opaque (255) but for pixels of one colour, which are transparent (0)."""
    return np.where((values == np.array(key)).all(axis=2), 0, 255).astype(np.uint8)


def _grey_or_colour(values: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(values[:, :, 0] if values.shape[2] == 1 else values)
