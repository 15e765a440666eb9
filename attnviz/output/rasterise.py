"""PDF and SVG files as pixels, with whatever program of this machine can draw them.

None is required: without one, files are compared by their bytes. PDF: the package pypdfium2, or
poppler's pdftoppm. SVG: the package cairosvg, librsvg's rsvg-convert, or Chromium.
"""

from __future__ import annotations

import io
import math
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from attnviz.storage import local_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnviz.domain import ByteArray

DPI = 100
"""Enough to see a line of half a point move."""

RENDERERS = {
    ".pdf": "pdftoppm or the package pypdfium2",
    ".svg": "rsvg-convert, Chromium or the package cairosvg",
}
"""What draws each kind of file, for a message."""

_SECONDS = 60
_AROUND = 400
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
_POINTS = re.compile(rb'<svg\b[^>]*?\bwidth="([\d.]+)pt"[^>]*?\bheight="([\d.]+)pt"', re.DOTALL)


def pages_of(path: Path) -> list[ByteArray] | None:
    """The pages of a PDF or SVG file, (h, w, 3) uint8 each, on white.

    None where nothing here can draw it, or the file is damaged.
    """
    ways = _PDF_WAYS if path.suffix.lower() == ".pdf" else _SVG_WAYS
    for way in ways:
        try:
            pages = way(local_copy(path))
        except (ImportError, OSError, ValueError, RuntimeError, subprocess.SubprocessError):
            continue
        if pages:
            return pages
    return None


def _by_pdfium(path: Path) -> list[ByteArray]:
    import pypdfium2

    with pypdfium2.PdfDocument(path) as document:
        return [_pixels(page.render(scale=DPI / 72).to_pil()) for page in document]


def _by_pdftoppm(path: Path) -> list[ByteArray]:
    with tempfile.TemporaryDirectory(prefix="attnviz-pages-") as folder:
        _run(["pdftoppm", "-r", str(DPI), "-png", str(path.absolute()), f"{folder}/page"])
        files = sorted(Path(folder).iterdir())
        return [_pixels(Image.open(file)) for file in files]


def _by_cairo(path: Path) -> list[ByteArray]:
    import cairosvg

    drawn = cairosvg.svg2png(bytestring=path.read_bytes(), dpi=DPI, background_color="white")
    return [_pixels(Image.open(io.BytesIO(drawn)))]


def _by_rsvg(path: Path) -> list[ByteArray]:
    dpi = ["--dpi-x", str(DPI), "--dpi-y", str(DPI)]
    drawn = _run(["rsvg-convert", *dpi, "--background-color", "white", str(path.absolute())])
    return [_pixels(Image.open(io.BytesIO(drawn)))]


def _by_chromium(path: Path) -> list[ByteArray]:
    browser = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    size = _POINTS.search(path.read_bytes())
    if browser is None or size is None:
        return []
    # A browser has 96 pixels to the inch, and its window is larger than what it shows.
    width, height = (math.ceil(float(side) * 96 / 72) for side in size.groups())
    window = f"{width + _AROUND},{height + _AROUND}"
    # Its sandbox does not work for root, as in a container.
    options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    options += ["--headless", "--disable-gpu", "--hide-scrollbars"]
    with tempfile.TemporaryDirectory(prefix="attnviz-pages-") as folder:
        drawn = Path(folder, "page.png")
        options += [f"--user-data-dir={folder}/profile", f"--window-size={window}"]
        _run([browser, *options, f"--screenshot={drawn}", path.absolute().as_uri()])
        return [_pixels(Image.open(drawn).crop((0, 0, width, height)))]


def _run(command: Sequence[str]) -> bytes:
    """Standard output of a program; an error where it is not there, fails, or takes too long."""
    return subprocess.run(  # noqa: S603 - a fixed program, and files that this run compares
        command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=_SECONDS
    ).stdout


def _pixels(image: Image.Image) -> ByteArray:
    return np.array(image.convert("RGB"))


_PDF_WAYS: tuple[Callable[[Path], list[ByteArray]], ...] = (_by_pdfium, _by_pdftoppm)
_SVG_WAYS: tuple[Callable[[Path], list[ByteArray]], ...] = (_by_cairo, _by_rsvg, _by_chromium)
