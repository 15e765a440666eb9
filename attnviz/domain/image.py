"""An image on disk, decoded, as the model sees it, and as a figure shows it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.domain.arrays import check_dtype, check_shape
from attnviz.domain.geometry import FitGeometry, Size

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.domain.arrays import ByteArray, FloatArray


@dataclass(frozen=True)
class ImageFile:
    """An image file.

    ``path`` is what is opened; ``relative`` is where its outputs go below the output folder
    (sub-folders of an input folder are kept; a file named on its own is just its name).
    """

    path: Path
    relative: Path


@dataclass(frozen=True, eq=False)
class RgbImage:
    """A decoded image, upright, in sRGB.

    pixels: (height, width, 3) uint8. ``sha256`` is that of the file's bytes (hex).
    ``notes``: what was done to it that a user should know (first frame taken, alpha flattened).
    """

    file: ImageFile
    pixels: ByteArray
    sha256: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_shape("RgbImage", "pixels", self.pixels, (None, None, 3))
        check_dtype("RgbImage", "pixels", self.pixels, "uint8")

    @property
    def size(self) -> Size:
        """Height and width of the image in pixels."""
        return Size(int(self.pixels.shape[0]), int(self.pixels.shape[1]))


@dataclass(frozen=True, eq=False)
class PreparedImage:
    """An image as the model sees it.

    tensor: (3, h, w) float32, normalised with the model's mean and standard deviation. black: what
    a black pixel becomes by that, one value a channel.
    """

    image: RgbImage
    geometry: FitGeometry
    tensor: FloatArray
    black: tuple[float, float, float]

    def __post_init__(self) -> None:
        check_shape("PreparedImage", "tensor", self.tensor, (3, *self.geometry.model_input))
        check_dtype("PreparedImage", "tensor", self.tensor, "float32")


@dataclass(frozen=True, eq=False)
class FigureImage:
    """What a figure needs of the image: its pixels, where the map lies on it, and its name.

    pixels: (height, width, 3) uint8, the original image. notes: what the foot says of it besides.
    """

    pixels: ByteArray
    geometry: FitGeometry
    name: str
    notes: tuple[str, ...] = ()


def sha256_of(data: bytes) -> str:
    """Hex SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()
