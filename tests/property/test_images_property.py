"""What holds for every picture, every size and every fit."""

from __future__ import annotations

import io
import math
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from attnviz.domain import Fit, FitGeometry, Size
from attnviz.domain.requests import SizeRequest
from attnviz.images.fit import plan_fit, prepare
from attnviz.images.read import read_image
from tests.helpers.pictures import (
    GREY,
    RED,
    as_file,
    exif_with_orientation,
    model_info,
    rgb_image,
    stored_for,
)

few = settings(max_examples=60, deadline=None)
sides = st.integers(1, 90)
sizes = st.builds(Size, sides, sides)
patches = st.sampled_from([4, 7, 8])
fits = st.sampled_from(list(Fit))


@st.composite
def requests(draw: st.DrawFn, patch: int, fit: Fit) -> SizeRequest:
    """A size that the fit accepts."""
    kind = draw(st.sampled_from(["native", "original", "int", "size"]))
    if kind in ("native", "original"):
        return None if kind == "native" else "original"
    step = 1 if fit is Fit.ASPECT else patch
    allowed = st.integers(-(-patch // step), 80 // step).map(lambda n: n * step)
    return draw(allowed) if kind == "int" else Size(draw(allowed), draw(allowed))


@st.composite
def plans(
    draw: st.DrawFn, pictures: st.SearchStrategy[Size]
) -> tuple[FitGeometry, SizeRequest, Fit]:
    patch, fit = draw(patches), draw(fits)
    size = draw(requests(patch, fit))
    return plan_fit(draw(pictures), patch, Size(5 * patch, 5 * patch), size, fit), size, fit


@few
@given(plans(sizes))
def test_every_plan_keeps_its_promises(plan: tuple[FitGeometry, SizeRequest, Fit]) -> None:
    geometry, size, fit = plan
    original, region = geometry.original, geometry.region
    assert min(geometry.grid) >= 1
    assert (region.bottom, region.right) > (region.top, region.left)
    if fit is Fit.ASPECT or fit is Fit.SQUASH:
        assert region == (0, 0, *original)
    if fit is Fit.CROP:
        assert min(region.top, region.left) >= 0
        assert region.bottom <= original.height + 1e-9
        assert region.right <= original.width + 1e-9
    if fit is Fit.PAD:
        assert (region.top, region.left) == (0, 0)
        assert region.bottom >= original.height - 1e-9
        assert region.right >= original.width - 1e-9
    if isinstance(size, Size):
        assert all(have <= want for have, want in zip(geometry.model_input, size, strict=True))
    if fit is not Fit.ASPECT and isinstance(size, int | Size) and size != "original":
        assert geometry.model_input == (Size(size, size) if isinstance(size, int) else size)


@few
@given(plans(sizes), st.data())
def test_cells_tile_the_region(
    plan: tuple[FitGeometry, SizeRequest, Fit], data: st.DataObject
) -> None:
    geometry, _, _ = plan
    row = data.draw(st.integers(0, geometry.grid.height - 1))
    column = data.draw(st.integers(0, geometry.grid.width - 1))
    box = geometry.cell_box(row, column)
    middle = ((box.top + box.bottom) / 2, (box.left + box.right) / 2)
    assert geometry.cell_at(*middle) == (row, column)
    corner = geometry.cell_box(geometry.grid.height - 1, geometry.grid.width - 1)
    np.testing.assert_allclose(corner[2:], geometry.region[2:], rtol=1e-12)


@few
@given(plans(st.builds(Size, st.integers(30, 120), st.integers(30, 120))), st.data())
def test_red_square_is_seen_by_the_cells_that_cover_it(
    plan: tuple[FitGeometry, SizeRequest, Fit], data: st.DataObject
) -> None:
    geometry, size, fit = plan
    original, patch = geometry.original, geometry.patch
    row = data.draw(st.integers(0, geometry.grid.height - 1))
    column = data.draw(st.integers(0, geometry.grid.width - 1))
    box = geometry.cell_box(row, column)
    # A pixel of the input mixes pixels of the photograph, half a one of its own beyond its edge.
    above, aside = (2 + math.ceil(length / patch / 2) for length in geometry.cell_size)
    top, left = max(0, int(box.top) - above), max(0, int(box.left) - aside)
    bottom, right = (
        min(original.height, int(box.bottom) + 1 + above),
        min(original.width, int(box.right) + 1 + aside),
    )
    pixels = np.full((*original, 3), GREY, dtype=np.uint8)
    pixels[top:bottom, left:right] = RED
    info = model_info(patch, 5 * patch, "bilinear", mean=(0, 0, 0), std=(1, 1, 1))
    prepared = prepare(rgb_image(pixels), info, size, fit)
    assert prepared.geometry == geometry
    redness = prepared.tensor[0] - prepared.tensor[1]
    cell = redness[row * patch : (row + 1) * patch, column * patch : (column + 1) * patch]
    if box.bottom <= original.height and box.right <= original.width:
        assert cell.min() > 0.95
    elif box.top >= original.height or box.left >= original.width:
        assert not cell.any()
    # Where the whole square lies in the input, its middle is where the geometry says.
    region = geometry.region
    starts_inside = top >= region.top and left >= region.left
    ends_inside = top < bottom <= region.bottom and left < right <= region.right
    if starts_inside and ends_inside:
        per_row = patch / geometry.cell_size[0]
        per_column = patch / geometry.cell_size[1]
        seen = redness / redness.sum()
        middle_row = (seen.sum(1) * (np.arange(len(seen)) + 0.5)).sum()
        middle_column = (seen.sum(0) * (np.arange(seen.shape[1]) + 0.5)).sum()
        assert abs(middle_row - ((top + bottom) / 2 - region.top) * per_row) < 0.5
        assert abs(middle_column - ((left + right) / 2 - region.left) * per_column) < 0.5


modes = st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])


@few
@given(modes, sizes, st.integers(1, 8), st.sampled_from(["PNG", "TIFF"]), st.integers(0, 99))
@example("LA", Size(1, 1), 5, "PNG", 0)
def test_reading_equals_numpy_for_every_mode_size_and_orientation(
    mode: str, size: Size, orientation: int, form: str, seed: int
) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(0, 256, (*size, 4), dtype=np.uint8)
    channels = {"1": 1, "L": 1, "LA": 2, "P": 1, "RGB": 3, "RGBA": 4, "I;16": 1}[mode]
    upright = values[:, :, :channels] if mode != "1" else values[:, :, :1] // 128 * 255
    stored = stored_for(orientation, upright)
    image = picture_of(mode, stored)
    stream = io.BytesIO()
    image.save(stream, form, exif=exif_with_orientation(orientation))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture"
        path.write_bytes(stream.getvalue())
        result = read_image(as_file(path), max_pixels=10**5)
    difference = np.abs(result.pixels.astype(int) - on_white(mode, upright))
    assert result.size == size
    assert difference.max() <= (1 if mode in ("LA", "RGBA") else 0)


def picture_of(mode: str, stored: np.ndarray) -> Image.Image:
    height, width, channels = stored.shape
    if mode == "1":
        return Image.fromarray(stored[:, :, 0]).convert("1")
    if mode == "I;16":
        wide = stored[:, :, 0].astype("<u2") * 257
        return Image.frombytes("I;16", (width, height), wide.tobytes())
    if channels == 1:
        image = Image.frombytes(mode, (width, height), stored.tobytes())
        if mode == "P":
            image.putpalette(bytes(255 - n // 3 for n in range(768)))
        return image
    return Image.frombytes(mode, (width, height), stored.tobytes())


def on_white(mode: str, upright: np.ndarray) -> np.ndarray:
    """The expected colours, in floats."""
    values = upright.astype(float)
    if mode == "P":
        values = 255 - values
    if mode in ("LA", "RGBA"):
        alpha = values[:, :, -1:] / 255
        values = values[:, :, :-1] * alpha + 255 * (1 - alpha)
    return np.broadcast_to(np.rint(values), (*upright.shape[:2], 3))
