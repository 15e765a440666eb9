"""The image formats that are read, and the suffixes that belong to them.

The list is short on purpose: every further decoder is one more that a damaged file can crash, and
some of Pillow's start other programs (EPS). Imports no Pillow, so that finding images is quick.
"""

from __future__ import annotations

from typing import NamedTuple

SUFFIXES: dict[str, tuple[str, ...]] = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "MPO": (".mpo",),
    "PNG": (".png", ".apng"),
    "WEBP": (".webp",),
    "TIFF": (".tif", ".tiff"),
    "GIF": (".gif",),
    "BMP": (".bmp",),
    "DIB": (".dib",),
    "AVIF": (".avif", ".avifs"),
    "JPEG2000": (".jp2", ".j2k", ".jpf", ".jpx", ".jpc", ".j2c"),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm", ".pfm"),
    "QOI": (".qoi",),
    "SGI": (".sgi", ".rgb", ".bw"),
    "PCX": (".pcx",),
    "TGA": (".tga",),
    "HEIF": (".heic", ".heif", ".hif"),
    "JXL": (".jxl",),
}
"""Pillow's name of each format and its suffixes, lower case."""

IMAGE_SUFFIXES = frozenset(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)

# A phone's JPEG that carries a second image is an MPO; both are rightly named .jpg.
_SAME_FAMILY = {"MPO": "JPEG", "DIB": "BMP"}

_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_JXL_SIGNATURES = (b"\xff\x0a", b"\x00\x00\x00\x0cJXL \r\n\x87\n")


class PlugIn(NamedTuple):
    """A format that Pillow reads with another package's help.

    ``module`` is imported when such a file turns up; ``opener`` is the function in it that makes
    Pillow know the format, or "" when the import alone does.
    """

    label: str
    pillow_format: str
    module: str
    opener: str
    package: str


_HEIC = PlugIn("HEIC", "HEIF", "pillow_heif", "register_heif_opener", "pillow-heif")
_JXL = PlugIn("JPEG XL", "JXL", "pillow_jxl", "", "pillow-jxl-plugin")


def plug_in_for(data: bytes) -> PlugIn | None:
    """The plug-in that a file with these bytes needs, or None."""
    if data[4:8] == b"ftyp" and data[8:12] in _HEIF_BRANDS:
        return _HEIC
    if data.startswith(_JXL_SIGNATURES):
        return _JXL
    return None


def suffix_fits(suffix: str, pillow_format: str) -> bool:
    """Whether the suffix says what the content is. An unknown suffix says nothing: True."""
    lower = suffix.lower()
    if lower not in IMAGE_SUFFIXES:
        return True
    family = _SAME_FAMILY.get(pillow_format, pillow_format)
    members = [name for name in SUFFIXES if _SAME_FAMILY.get(name, name) == family]
    return any(lower in SUFFIXES[name] for name in members)
