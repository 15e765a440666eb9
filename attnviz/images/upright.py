"""EXIF orientation: stored images turned as they are meant to be seen."""

from __future__ import annotations

from PIL import ExifTags, Image

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def orientation_of(image: Image.Image) -> int:
    """EXIF orientation, 1 where it is missing or its block is damaged. Asked after loading.

    Pillow turns TIFF upright while loading, and the HEIC plug-in does; both then report 1.
    """
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # noqa: BLE001 - damaged metadata does not spoil the pixels
        return 1


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """The image turned; itself for an orientation of 1 or an unknown one."""
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)
