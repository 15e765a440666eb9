"""Images for tests: computed, and saved in every form that a folder may hold them in."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageCms

from attnviz.domain import ImageFile, ModelInfo, Positions, RgbImage, Size

if TYPE_CHECKING:
    from numpy.typing import NDArray

RED = (255, 0, 0)
GREY = (128, 128, 128)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def scene(height: int, width: int) -> NDArray[np.uint8]:
    """An image without any symmetry: red grows downwards, green to the right, blue in a corner."""
    rows = np.linspace(0, 255, height)[:, None] * np.ones((1, width))
    columns = np.ones((height, 1)) * np.linspace(0, 255, width)[None]
    corner = np.zeros((height, width))
    corner[: height // 2, : width // 4] = 200
    return np.stack([rows, columns, corner], axis=2).astype(np.uint8)


def as_file(path: Path) -> ImageFile:
    return ImageFile(path, Path(path.name))


def rgb_image(pixels: NDArray[np.uint8]) -> RgbImage:
    return RgbImage(ImageFile(Path("made.png"), Path("made.png")), pixels, "0" * 64)


def model_info(
    patch: int = 8,
    native: int | Size = 224,
    interpolation: str = "bicubic",
    mean: tuple[float, float, float] = IMAGENET_MEAN,
    std: tuple[float, float, float] = IMAGENET_STD,
) -> ModelInfo:
    return ModelInfo(
        name="tiny",
        timm_name="tiny",
        patch=patch,
        width=192,
        depth=2,
        heads=3,
        prefix=1,
        registers=0,
        has_cls=True,
        native_size=Size(native, native) if isinstance(native, int) else native,
        mean=mean,
        std=std,
        interpolation=interpolation,
        positions=Positions.TIMM,
        weights="none",
    )


def exif_with_orientation(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def stored_for(orientation: int, upright: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The array that a camera stores for the orientation to turn it into ``upright``.

    From the EXIF table: where row 0 and column 0 of the stored image are on the upright one
    (1 top left, 2 top right, 3 bottom right, 4 bottom left, 5 left top, 6 right top, 7 right
    bottom, 8 left bottom).
    """
    transposed = upright.transpose(1, 0, 2)
    return np.ascontiguousarray(
        {
            1: upright,
            2: upright[:, ::-1],
            3: upright[::-1, ::-1],
            4: upright[::-1],
            5: transposed,
            6: transposed[::-1],
            7: transposed[::-1, ::-1],
            8: transposed[:, ::-1],
        }[orientation]
    )


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    # Copies, because saving leaves the encoder's settings on the images.
    if "append_images" in options:
        options["append_images"] = [more.copy() for more in options["append_images"]]
    image.copy().save(stream, form, **options)
    return stream.getvalue()


def png_header_only(height: int, width: int) -> bytes:
    """A PNG of a few bytes that declares this size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def icc_profile(space: bytes, kind: bytes, tags: dict[bytes, bytes], pcs: bytes) -> bytes:
    """A colour profile (ICC.1:2001) from its tags."""
    tags = {b"desc": _description(b"made by hand"), **tags}
    offset = 128 + 4 + 12 * len(tags)
    table, body = struct.pack(">I", len(tags)), b""
    for name, data in tags.items():
        table += name + struct.pack(">II", offset + len(body), len(data))
        body += data + b"\0" * (-len(data) % 4)
    illuminant = struct.pack(">iii", 63190, 65536, 54061)
    size = 128 + len(table) + len(body)
    header = struct.pack(">I4sI4s4s4s", size, b"lcms", 0x02400000, kind, space, pcs)
    header += b"\0" * 12 + b"acsp" + b"\0" * 28 + illuminant
    return header.ljust(128, b"\0") + table + body


def _description(text: bytes) -> bytes:
    return b"desc\0\0\0\0" + struct.pack(">I", len(text) + 1) + text + b"\0" + b"\0" * 78


def linear_grey_profile() -> bytes:
    """Grey with values proportional to light: 0.5 is sRGB 188."""
    white = b"XYZ \0\0\0\0" + struct.pack(">iii", 63190, 65536, 54061)
    gamma_one = b"curv\0\0\0\0" + struct.pack(">IH", 1, 256)
    return icc_profile(b"GRAY", b"mntr", {b"wtpt": white, b"kTRC": gamma_one}, b"XYZ ")


def grey_ink_profile() -> bytes:
    """CMYK inks without colour: black is black, cyan is L* = 50, the others do not print."""
    white = b"XYZ \0\0\0\0" + struct.pack(">iii", 63190, 65536, 54061)
    ramp = bytes(range(256))
    identity = struct.pack(">9i", 65536, 0, 0, 0, 65536, 0, 0, 0, 65536)
    # 2 points on each of 4 axes, cyan slowest and black fastest; L*, a*, b* as bytes.
    lightness = [0 if n % 2 else 128 if n >= 8 else 255 for n in range(16)]
    corners = b"".join(bytes([value, 128, 128]) for value in lightness)
    table = b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + identity + ramp * 4 + corners + ramp * 3
    return icc_profile(b"CMYK", b"prtr", {b"wtpt": white, b"A2B0": table}, b"Lab ")


def srgb_profile() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def swapped_profile() -> bytes:
    """sRGB with the colours of its red and green primaries exchanged, and no longer named sRGB."""
    profile = srgb_profile()
    swapped = profile.replace(b"rXYZ", b"????").replace(b"gXYZ", b"rXYZ").replace(b"????", b"gXYZ")
    return swapped.replace("sRGB".encode("utf-16-be"), "xRGB".encode("utf-16-be"))


def png_of_sixteen_bits(values: np.ndarray) -> bytes:
    """Rows without a filter."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    height, width, channels = values.shape
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)
