"""Figures for TensorBoard, with the same pixels as the PNG files."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from attnviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnviz.domain import WrittenFile

_WRITERS = ("torch.utils.tensorboard", "tensorboardX")


class Board:
    """Adds images to an open SummaryWriter."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def show(self, tag: str, files: Sequence[WrittenFile], step: int) -> None:
        """Add the PNG pages of a figure under its tag; further pages as ``TAG/2``, ``TAG/3``."""
        pages = [f.path for f in files if f.kind == "figure" and f.path.suffix == ".png"]
        for number, path in enumerate(pages, 1):
            with Image.open(BytesIO(path.read_bytes())) as image:
                pixels = np.asarray(image.convert("RGB"))  # height, width, 3
            name = tag if number == 1 else f"{tag}/{number}"
            self.writer.add_image(name, pixels, global_step=step, dataformats="HWC")
        self.writer.flush()


def open_board(target: Any) -> Board:
    """A board that writes to a folder, or through an open SummaryWriter.

    Raises:
        UsageError: Neither tensorboard nor tensorboardX is installed.
    """
    if not isinstance(target, str | Path):
        return Board(target)
    for name in _WRITERS:
        try:
            writer = import_module(name).SummaryWriter
        except ImportError:
            continue
        return Board(writer(str(target)))
    raise UsageError(
        "tensorboard is not installed", "pip install 'attnviz[tensorboard]', or tensorboardX"
    )
